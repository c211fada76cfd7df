#include "simulator/traffic.hpp"

#include <gtest/gtest.h>

namespace simulator {
namespace {

constexpr Router kDeepSeekV3{.num_experts = 256, .experts_per_token = 8, .num_groups = 8, .kept_groups = 4};

// 8 x 7168 FP8 out and 8 x 7168 BF16 back.
TEST(Traffic, DeepSeekV3_Moves168KiBForATokenAndLayer) {
  const CopyBytes copy = copy_bytes(7168);
  const int64_t bytes = 8 * (copy.dispatch + copy.combine);
  EXPECT_EQ(bytes, 168 * 1024);
  EXPECT_EQ(58 * bytes, 9'744 * 1024);
  EXPECT_EQ(32 * bytes, 21 * 1024 * 1024 / 4);  // 5.25 MiB
  EXPECT_EQ(128 * bytes, 21 * 1024 * 1024);
  EXPECT_EQ(copy.dispatch_scales, 4 * 56);
}

// 2 x 7/8 x 14,336 bytes: 24.5 KiB, quoted as 25.
TEST(Traffic, RingAllReduceOf8_SendsSevenQuartersOfThePayload) {
  EXPECT_EQ(ring_allreduce_bytes(2 * 7168, 8), 25'088);
  EXPECT_EQ(ring_allreduce_bytes(2 * 7168, 1), 0);
  EXPECT_EQ(ring_allreduce_bytes(10, 3), 2 * 2 * 4);  // chunks of 4, the last one padded
}

TEST(Traffic, CopiesOnOneNode_StayOffTheNetwork) {
  const CopySpread spread = copy_spread(kDeepSeekV3, 8, 8);
  EXPECT_EQ(spread.num_nodes, 1);
  EXPECT_DOUBLE_EQ(spread.off_rank_frac, 7.0 / 8);
  EXPECT_NEAR(spread.off_node_frac, 0, 1e-12);
  EXPECT_NEAR(spread.per_copy_in_node, 7, 1e-12);
  EXPECT_NEAR(spread.per_node_off_node, 0, 1e-12);
}

TEST(Traffic, CopiesOnManyNodes_LeaveByTheShareOfOtherNodes) {
  const CopySpread spread = copy_spread(kDeepSeekV3, 64, 8);
  EXPECT_DOUBLE_EQ(spread.off_rank_frac, 63.0 / 64);
  EXPECT_NEAR(spread.off_node_frac, 7.0 / 8, 1e-12);
  EXPECT_NEAR(spread.per_copy_off_node, 7, 1e-12);
  EXPECT_NEAR(spread.per_node_off_node, spread.nodes_reached * 7 / 8, 1e-12);
  EXPECT_NEAR(spread.per_copy_in_node, 8 * (63.0 / 64 - 7.0 / 8), 1e-12);
  EXPECT_EQ(spread.most_nodes, 4);
}

// 12 ranks on nodes of 8: 8 and 4 ranks, so copies stay with chance 4/9 + 1/9. Experts divide alike.
TEST(Traffic, HalfFilledNode_CountsByItsRanks) {
  const Router router{.num_experts = 24, .experts_per_token = 2, .num_groups = 1, .kept_groups = 1};
  const CopySpread spread = copy_spread(router, 12, 8);
  EXPECT_EQ(spread.num_nodes, 2);
  EXPECT_NEAR(spread.off_node_frac, 4.0 / 9, 1e-12);
}

}  // namespace
}  // namespace simulator
