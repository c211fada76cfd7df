// Loads of experts and ranks: shares over the mean, before and after balancing.
#include "simulator/load_tables.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace simulator {
namespace {

std::vector<double> loads(const std::vector<Cell>& row, size_t first) {
  std::vector<double> values;
  for (size_t i = first; i < row.size(); ++i) {
    values.push_back(std::get<double>(row[i]));
  }
  return values;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return sum / static_cast<double>(values.size());
}

// DeepSeek-V3: 58 MoE layers behind 3 dense ones, 256 experts.
TEST(LoadTables, EveryLayerHasAMeanOfOneAndEplbEvensRanks) {
  SkewOptions options;
  options.hardware = load_hardware("h100");
  options.eps = {32};
  options.num_redundant = 32;
  const auto tables = load_tables(load_model("deepseek-v3"), options);
  ASSERT_EQ(tables.size(), 2);
  const Table& experts = tables[0];
  const Table& ranks = tables[1];
  ASSERT_EQ(experts.rows.size(), 58);
  EXPECT_EQ(std::get<int64_t>(experts.rows.front()[0]), 3);
  for (const auto& row : experts.rows) {
    ASSERT_EQ(row.size(), 1 + 256);
    EXPECT_NEAR(mean(loads(row, 1)), 1, 1e-9);
  }
  ASSERT_EQ(ranks.rows.size(), 2 * 58);
  for (size_t layer = 0; layer < 58; ++layer) {
    const auto plain = loads(ranks.rows[layer], 2);
    const auto balanced = loads(ranks.rows[58 + layer], 2);
    EXPECT_NEAR(mean(plain), 1, 1e-9);
    EXPECT_NEAR(mean(balanced), 1, 1e-9);
    EXPECT_LT(*std::ranges::max_element(balanced), *std::ranges::max_element(plain));
  }
}

}  // namespace
}  // namespace simulator
