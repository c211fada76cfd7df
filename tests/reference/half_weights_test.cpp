#include "reference/half_weights.hpp"

#include <gtest/gtest.h>

#include "tests/reference/small_model.hpp"

namespace reference {
namespace {

const std::string kFirst = "model.layers.0.self_attn.kv_b_proj.weight";
const std::string kSecond = "model.layers.1.self_attn.kv_b_proj.weight";

TEST(HalfWeights, HoldWhatReadingTheCodesGives) {
  const auto weights = random_weights(small_config(), 6);
  const WeightMatrix stored(weights, kFirst);
  const auto half = HalfWeights().find(kFirst, stored);
  ASSERT_TRUE(half.has_value());
  EXPECT_FALSE(half->is_fp8());
  std::vector<float> expected(static_cast<size_t>(stored.in_dim()));
  std::vector<float> row(expected.size());
  for (int64_t r = 0; r < stored.out_dim(); ++r) {
    stored.bf16_row(r, expected);
    half->row(r, row);
    ASSERT_EQ(row, expected) << r;
  }
}

TEST(HalfWeights, KeepWhatThereIsRoomFor) {
  const auto weights = random_weights(small_config(), 6);
  const WeightMatrix first(weights, kFirst);
  const WeightMatrix second(weights, kSecond);
  HalfWeights one(first.out_dim() * first.in_dim() * 2);
  EXPECT_TRUE(one.find(kFirst, first).has_value());
  EXPECT_FALSE(one.find(kSecond, second).has_value());
  EXPECT_TRUE(one.find(kFirst, first).has_value());
}

}  // namespace
}  // namespace reference
