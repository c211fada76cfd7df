#include "reference/ops/weighted_rows.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace reference {
namespace {

template <typename T>
class WeightedRows : public ::testing::Test {};
using Kinds = ::testing::Types<float, double>;
TYPED_TEST_SUITE(WeightedRows, Kinds);

// dot_in_order of each column: odd lengths, one block, block ends, several blocks; the columns behind the read ones are NaN.
TYPED_TEST(WeightedRows, HaveTheBitsOfTheDotOfEachColumn) {
  std::mt19937 generator(5);
  std::normal_distribution<TypeParam> normal;
  constexpr int64_t kStride = 37;
  for (const int64_t num_rows : {0, 1, 2, 15, 16, 17, 100, 127, 128, 129, 144, 256, 300, 511}) {
    std::vector<TypeParam> weights(static_cast<size_t>(num_rows));
    std::vector<TypeParam> rows(static_cast<size_t>(num_rows * kStride), std::numeric_limits<TypeParam>::quiet_NaN());
    for (auto& weight : weights) {
      weight = normal(generator);
    }
    for (const int64_t len : {1, 5, 32, 37}) {
      for (int64_t i = 0; i < num_rows; ++i) {
        for (int64_t j = 0; j < len; ++j) {
          rows[static_cast<size_t>(i * kStride + j)] = i % 5 == 3 ? TypeParam(-0.0) : normal(generator);
        }
      }
      std::vector<TypeParam> sums(static_cast<size_t>(len), 7);
      weighted_rows<TypeParam>(weights, rows.data(), kStride, sums);
      for (int64_t j = 0; j < len; ++j) {
        std::vector<TypeParam> column;
        for (int64_t i = 0; i < num_rows; ++i) {
          column.push_back(rows[static_cast<size_t>(i * kStride + j)]);
        }
        const TypeParam expected = dot_in_order<TypeParam>(weights, column);
        ASSERT_EQ(std::memcmp(&expected, &sums[static_cast<size_t>(j)], sizeof(expected)), 0)
            << num_rows << " rows, column " << j << " of " << len;
      }
    }
  }
}

}  // namespace
}  // namespace reference
