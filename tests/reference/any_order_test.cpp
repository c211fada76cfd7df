// Sums in any order are still sums of every product: at each level, for whole and ragged shapes.
#include "reference/any_order.hpp"

#include <gtest/gtest.h>

#include <random>

#include "reference/simd/kernels.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

struct Shape {
  int64_t rows;
  int64_t out_dim;
  int64_t in_dim;
};

// Whole numbers up to 7: every sum of theirs is exact, so no order can be told from another.
std::vector<float> whole_numbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(static_cast<float>(static_cast<int>(random() % 15) - 7));
  }
  return numbers;
}

class AnyOrder : public ::testing::TestWithParam<Shape> {};

TEST_P(AnyOrder, EveryProductIsThereOnce) {
  const auto [rows, out_dim, in_dim] = GetParam();
  const auto x = whole_numbers(rows * in_dim, 1);
  const auto w = whole_numbers(out_dim * in_dim, 2);
  HandMadeWeights weights;
  weights.set("w", bf16({out_dim, in_dim}, w));
  const WeightMatrix weight(weights, "w");
  BlockedRows blocked(rows, in_dim);
  for (int64_t m = 0; m < rows; ++m) {
    blocked.set(m, std::span(x).subspan(static_cast<size_t>(m * in_dim), static_cast<size_t>(in_dim)));
  }
  std::vector<float> expected;
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < out_dim; ++n) {
      int64_t sum = 0;
      for (int64_t k = 0; k < in_dim; ++k) {
        sum += static_cast<int64_t>(x[static_cast<size_t>(m * in_dim + k)] * w[static_cast<size_t>(n * in_dim + k)]);
      }
      expected.push_back(static_cast<float>(sum));
    }
  }
  for (const simd::Level level : simd::supported_levels()) {
    simd::use_level(level);
    EXPECT_EQ(any_order_matmul(blocked, weight, WeightForm::kBf16, 2), expected) << simd::level_name(level);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         AnyOrder,
                         ::testing::Values(Shape{1, 8, 128}, Shape{3, 40, 256}, Shape{7, 21, 331}, Shape{5, 3, 16}));

// x = 1 in one place: amax 1, code 448 at scale FP32(1/448); weight 2 with scale 0.5 in the first block and 4 in the second.
TEST(AnyOrderFp8, EachBlockMeetsItsScales) {
  HandMadeWeights weights;
  weights.set("w", f8({1, 256}, std::vector<float>(256, 2)));
  weights.set("w_scale_inv", f32({1, 2}, {0.5f, 4}));
  const WeightMatrix weight(weights, "w");
  BlockedRows blocked(2, 256);
  std::vector<float> row(256, 0.0f);
  row[5] = 1;
  blocked.set_quantised(0, row, {});
  row[5] = 0;
  row[200] = 1;
  blocked.set_quantised(1, row, {});
  for (const simd::Level level : simd::supported_levels()) {
    simd::use_level(level);
    const auto y = any_order_matmul(blocked, weight, WeightForm::kCodes, 1);
    EXPECT_FLOAT_EQ(y[0], 1) << simd::level_name(level);
    EXPECT_FLOAT_EQ(y[1], 8) << simd::level_name(level);
  }
}

}  // namespace
}  // namespace reference
