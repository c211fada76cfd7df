#include "reference/numerics/reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace reference {
namespace {

template <typename T>
class Reduce : public testing::Test {
 public:
  // A number that 1 disappears in, and so large that its double also swallows 2: 1 + kLarge == kLarge.
  static constexpr T kLarge = sizeof(T) == 4 ? T{0x1p30} : T{0x1p60};
  static constexpr T kSmall = 1;

  static T sum(const std::vector<T>& x) { return sum_in_order<T>(x); }
  static std::vector<T> ones(size_t len) { return std::vector<T>(len, T{1}); }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Reduce, Types);

// The order as the header states it, one addition a line, no vectors and no padding.
template <typename T>
T restated_dot(const std::vector<T>& a, const std::vector<T>& b) {
  T total = 0;
  for (size_t start = 0; start < a.size(); start += 128) {
    T lane[16] = {};
    for (size_t k = start; k < std::min(a.size(), start + 128); ++k) {
      const T product = a[k] * b[k];
      lane[k % 16] = lane[k % 16] + product;
    }
    T eight[8];
    for (int i = 0; i < 8; ++i) {
      eight[i] = lane[i] + lane[i + 8];
    }
    T four[4];
    for (int i = 0; i < 4; ++i) {
      four[i] = eight[i] + eight[i + 4];
    }
    const T even = four[0] + four[2];
    const T odd = four[1] + four[3];
    total = total + (even + odd);
  }
  return total;
}

// Values of very different size, so that nearly every other order ends in other bits. Lehmer's generator, Park and Miller 1988.
template <typename T>
std::vector<T> scattered(size_t len, uint64_t seed) {
  std::vector<T> x(len);
  uint64_t state = seed;
  for (T& element : x) {
    state = state * 48271 % 2147483647;
    const T magnitude = static_cast<T>(state) / static_cast<T>(uint64_t{1} << (state % 40));
    element = state % 3 == 0 ? -magnitude : magnitude;
  }
  return x;
}

TYPED_TEST(Reduce, ElementsSixteenApartShareALane) {
  // One lane: large + 1 - large = 0. Were 16 in another lane than 0, the large ones would meet first and 1 survive.
  std::vector<TypeParam> x(48);
  x[0] = this->kLarge;
  x[16] = this->kSmall;
  x[32] = -this->kLarge;
  EXPECT_EQ(this->sum(x), 0);
}

TYPED_TEST(Reduce, LanesAddInAscendingOrder) {
  // 1 + large - large = 0 ascending; descending the large ones meet first and leave 1.
  std::vector<TypeParam> x(48);
  x[0] = this->kSmall;
  x[16] = this->kLarge;
  x[32] = -this->kLarge;
  EXPECT_EQ(this->sum(x), 0);
  std::reverse(x.begin(), x.end());  // now in lane 15: -large + large + 1
  EXPECT_EQ(this->sum(x), 1);
}

TYPED_TEST(Reduce, TreeJoinsLanesEightApartFirst) {
  // 0 + 8 cancel, then 1 from lane 4 survives. A tree that starts with (0, 4) or (0, 1) swallows it.
  for (const int partner : {1, 2, 4}) {
    std::vector<TypeParam> x(16);
    x[0] = this->kLarge;
    x[8] = -this->kLarge;
    x[partner] = this->kSmall;
    EXPECT_EQ(this->sum(x), 1) << partner;
  }
}

TYPED_TEST(Reduce, TreeJoinsLanesFourApartSecond) {
  for (const int partner : {1, 2}) {
    std::vector<TypeParam> x(16);
    x[0] = this->kLarge;
    x[4] = -this->kLarge;
    x[partner] = this->kSmall;
    EXPECT_EQ(this->sum(x), 1) << partner;
    std::vector<TypeParam> y(16);
    y[0] = this->kLarge;
    y[4] = -this->kLarge;
    y[8] = this->kSmall;  // joins lane 0 before lane 4 does
    EXPECT_EQ(this->sum(y), 0);
  }
}

TYPED_TEST(Reduce, TreeJoinsLanesTwoApartThird) {
  std::vector<TypeParam> x(16);
  x[0] = this->kLarge;
  x[2] = -this->kLarge;
  x[1] = this->kSmall;
  EXPECT_EQ(this->sum(x), 1);
  std::vector<TypeParam> y(16);
  y[0] = this->kLarge;
  y[1] = -this->kLarge;
  y[2] = this->kSmall;
  EXPECT_EQ(this->sum(y), 0);
}

TYPED_TEST(Reduce, BlocksOf128AddInAscendingOrder) {
  // Block sums large, 1, -large: 0 in this order. One lane over the whole length would give the same; the next test tells them apart.
  std::vector<TypeParam> x(384);
  x[0] = this->kLarge;
  x[128 + 5] = this->kSmall;
  x[256] = -this->kLarge;
  EXPECT_EQ(this->sum(x), 0);
}

TYPED_TEST(Reduce, LanesStartAnewInEachBlock) {
  // Within block 0 the large ones cancel (lanes 0 and 8). If lane 0 ran on into block 1, its 1 would be swallowed.
  std::vector<TypeParam> x(256);
  x[0] = this->kLarge;
  x[8] = -this->kLarge;
  x[128] = this->kSmall;
  EXPECT_EQ(this->sum(x), 1);
  // 127 and 128 are in different blocks.
  std::vector<TypeParam> y(256);
  y[127] = this->kLarge;
  y[128] = this->kSmall;
  y[119] = -this->kLarge;
  EXPECT_EQ(this->sum(y), 1);
}

TYPED_TEST(Reduce, EveryLengthAddsEveryElementOnce) {
  for (size_t len = 0; len <= 400; ++len) {
    const std::vector<TypeParam> x = this->ones(len);
    ASSERT_EQ(this->sum(x), static_cast<TypeParam>(len));
    ASSERT_EQ(sum_of_squares_in_order<TypeParam>(x), static_cast<TypeParam>(len));
    ASSERT_EQ(dot_in_order<TypeParam>(x, x), static_cast<TypeParam>(len));
  }
}

TYPED_TEST(Reduce, DotFollowsTheRestatedOrderAtEveryLength) {
  for (size_t len = 0; len <= 700; ++len) {
    const std::vector<TypeParam> a = scattered<TypeParam>(len, 1 + len);
    const std::vector<TypeParam> b = scattered<TypeParam>(len, 7919 + len);
    ASSERT_EQ(dot_in_order<TypeParam>(a, b), restated_dot(a, b)) << len;
    ASSERT_EQ(sum_of_squares_in_order<TypeParam>(a), restated_dot(a, a)) << len;
    ASSERT_EQ(this->sum(a), restated_dot(a, this->ones(len))) << len;
  }
}

TYPED_TEST(Reduce, DotFollowsTheRestatedOrderAtModelSizes) {
  for (const size_t len : {1536, 2048, 7168, 18432}) {
    const std::vector<TypeParam> a = scattered<TypeParam>(len, 3);
    const std::vector<TypeParam> b = scattered<TypeParam>(len, 5);
    EXPECT_EQ(dot_in_order<TypeParam>(a, b), restated_dot(a, b)) << len;
  }
}

TYPED_TEST(Reduce, BlockDotIsOneBlock) {
  for (size_t len = 0; len <= 128; ++len) {
    const std::vector<TypeParam> a = scattered<TypeParam>(len, 11 + len);
    const std::vector<TypeParam> b = scattered<TypeParam>(len, 13 + len);
    ASSERT_EQ(block_dot<TypeParam>(a, b), restated_dot(a, b)) << len;
  }
}

// (1 + d)^2 = 1 + 2d + d^2 rounds to 1 + 2d: a fused step would keep d^2 after the other product cancels the rest.
TYPED_TEST(Reduce, ProductsAreRoundedBeforeTheyAreAdded) {
  constexpr TypeParam kD = sizeof(TypeParam) == 4 ? TypeParam{0x1p-14} : TypeParam{0x1p-30};
  std::vector<TypeParam> a(32);
  std::vector<TypeParam> b(32);
  a[0] = -(1 + 2 * kD);
  b[0] = 1;
  a[16] = 1 + kD;
  b[16] = 1 + kD;
  EXPECT_EQ((dot_in_order<TypeParam>(a, b)), 0);
}

TYPED_TEST(Reduce, InfinityAndNanComeThroughARaggedTail) {
  const TypeParam inf = std::numeric_limits<TypeParam>::infinity();
  std::vector<TypeParam> x = this->ones(133);
  x[132] = inf;
  EXPECT_EQ(this->sum(x), inf);
  EXPECT_EQ(sum_of_squares_in_order<TypeParam>(x), inf);
  x[131] = -inf;
  EXPECT_TRUE(std::isnan(this->sum(x)));
}

TYPED_TEST(Reduce, NothingBeyondTheEndIsRead) {
  std::vector<TypeParam> x(160, std::numeric_limits<TypeParam>::quiet_NaN());
  for (const size_t len : {0, 1, 15, 17, 127, 129, 143}) {
    std::fill_n(x.begin(), len, TypeParam{1});
    EXPECT_EQ(sum_in_order<TypeParam>({x.data(), len}), static_cast<TypeParam>(len));
    EXPECT_EQ(dot_in_order<TypeParam>({x.data(), len}, {x.data(), len}), static_cast<TypeParam>(len));
  }
}

}  // namespace
}  // namespace reference
