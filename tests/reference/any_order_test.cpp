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
                         ::testing::Values(Shape{1, 8, 128},
                                           Shape{3, 40, 256},
                                           Shape{7, 21, 331},
                                           Shape{16, 24, 128},
                                           Shape{33, 101, 331},
                                           Shape{47, 3, 16},
                                           Shape{300, 25, 130}));

// Row m is 1 in one place, of the first block if m is even and of the second if it is odd: amax 1, code 448 at scale FP32(1/448). Weights
// are 2, with scales 0.5 and 4 in rows 0 to 127, and 1 and 8 from row 128 on.
TEST(AnyOrderFp8, EachBlockMeetsItsScales) {
  constexpr int64_t kOutDim = 130;
  HandMadeWeights weights;
  weights.set("w", f8({kOutDim, 256}, std::vector<float>(kOutDim * 256, 2)));
  weights.set("w_scale_inv", f32({2, 2}, {0.5f, 4, 1, 8}));
  const WeightMatrix weight(weights, "w");
  for (const int64_t num_rows : {2, 21}) {
    BlockedRows blocked(num_rows, 256);
    for (int64_t m = 0; m < num_rows; ++m) {
      std::vector<float> row(256, 0.0f);
      row[m % 2 == 0 ? 5 : 200] = 1;
      blocked.set_quantised(m, row, {});
    }
    for (const simd::Level level : simd::supported_levels()) {
      simd::use_level(level);
      const auto y = any_order_matmul(blocked, weight, WeightForm::kCodes, 1);
      for (int64_t m = 0; m < num_rows; ++m) {
        for (int64_t n = 0; n < kOutDim; ++n) {
          const float expected = (m % 2 == 0 ? 1.0f : 8.0f) * (n < 128 ? 1.0f : 2.0f);
          ASSERT_FLOAT_EQ(y[static_cast<size_t>(m * kOutDim + n)], expected)
              << simd::level_name(level) << ", row " << m << " of " << num_rows << ", output " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace reference
