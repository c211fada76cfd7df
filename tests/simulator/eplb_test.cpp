#include "simulator/eplb.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "model/check.hpp"
#include "simulator/counter_random.hpp"
#include "simulator/skew.hpp"

namespace simulator {
namespace {

// README of deepseek-ai/EPLB: two layers of 12 experts in 4 groups, 16 slots, 2 nodes, 8 GPUs.
TEST(Eplb, ReadmeExample_HierarchicalPlacementIsTheirs) {
  const EplbShape shape{.num_slots = 16, .num_groups = 4, .num_nodes = 2, .num_ranks = 8};
  const Placement first = eplb_placement({90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86}, shape);
  EXPECT_EQ(first.expert_of_slot, (std::vector<int64_t>{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1}));
  const Placement second = eplb_placement({20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}, shape);
  EXPECT_EQ(second.expert_of_slot, (std::vector<int64_t>{7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}));
}

// By hand: loads 6 5 2 1 on 2 ranks with 3 slots each. Copies go to 6 (3 + 3), then 5 (2.5 + 2.5). Packing by weight
// 3 3 2.5 2.5 2 1: A gets 3 2.5 2, B gets 3 2.5 1.
TEST(Eplb, GroupsNotDivisibleByNodes_IsGlobal) {
  const EplbShape shape{.num_slots = 6, .num_groups = 1, .num_nodes = 2, .num_ranks = 2};
  const Placement placement = eplb_placement({6, 5, 2, 1}, shape);
  EXPECT_EQ(placement.expert_of_slot, (std::vector<int64_t>{0, 1, 2, 0, 1, 3}));
  EXPECT_EQ(rank_loads({6, 5, 2, 1}, placement), (std::vector<double>{7.5, 6.5}));
}

TEST(Eplb, SlotsThatDoNotDivide_AreRefusedWithTheNumberThatWould) {
  try {
    eplb_placement(std::vector<double>(256, 1.0), {.num_slots = 256, .num_ranks = 48});
    FAIL() << "accepted";
  } catch (const model::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("288"), std::string::npos) << error.what();
  }
}

// TensorRT-LLM tech blog 04: EPLB with 288 slots brings the rank max/mean of R1's layers at EP32 from 2.56 to 1.11 (EP36: 1.115) on
// the load of following iterations. On the very load it was computed from, it can only be better than that.
TEST(Eplb, LogNormalLoad_IsBalancedAtLeastAsWellAsMeasured) {
  const std::vector<double> load = layer_popularity({}, 256, 8, 8192, 0, 7);
  const Placement plain = contiguous_placement(256, 32, 256, false);
  EXPECT_GT(max_over_mean(rank_loads(load, plain)), 1.5);
  for (const int64_t ranks : {32, 36}) {
    const Placement balanced = eplb_placement(load, {.num_slots = 288, .num_ranks = ranks});
    EXPECT_LT(max_over_mean(rank_loads(load, balanced)), 1.115) << "EP" << ranks;
    check_placement(balanced);
  }
}

TEST(ImprovedPlacement, NeverWorse_AndFindsTheSwap) {
  // 4 + 3 against 2 + 1; swapping 3 and 1 (or 4 and 2) balances.
  const Placement start{.num_experts = 4, .num_ranks = 2, .expert_of_slot = {0, 1, 2, 3}};
  const std::vector<double> load{4, 3, 2, 1};
  EXPECT_EQ(max_over_mean(rank_loads(load, improved_placement(load, start))), 1);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const std::vector<double> drawn = layer_popularity({}, 64, 8, 512, 0, seed);
    const Placement balanced = eplb_placement(drawn, {.num_slots = 72, .num_ranks = 8});
    const Placement improved = improved_placement(drawn, balanced);
    check_placement(improved);
    EXPECT_LE(max_over_mean(rank_loads(drawn, improved)), max_over_mean(rank_loads(drawn, balanced)));
    EXPECT_GE(max_over_mean(rank_loads(drawn, improved)), 1);
  }
}

// DeepSeek-V3 report, section 3.4.1: 16 experts hosted on each GPU, 9 active in a step.
TEST(DynamicRedundancy, SixteenHostedNineActive_BalancesALoadThatMovedOn) {
  const std::vector<double> hosted = layer_popularity({}, 256, 8, 8192, 0, 3);
  CounterRandom random(11);
  const std::vector<double> now = drifted(hosted, 0.8, random);
  const Placement active = dynamic_redundancy(hosted, now, 32, 16, 9);
  EXPECT_EQ(active.slots_per_rank(), 9);
  check_placement(active);
  const Placement fixed = eplb_placement(hosted, {.num_slots = 288, .num_ranks = 32});
  EXPECT_LT(max_over_mean(rank_loads(now, active)), max_over_mean(rank_loads(now, fixed)));
  EXPECT_THROW(dynamic_redundancy(hosted, now, 32, 16, 7), model::InputError);
}

TEST(Placement, ExpertsThatDoNotDivide_NeedSlots) {
  try {
    contiguous_placement(256, 48, 256, false);
    FAIL() << "accepted";
  } catch (const model::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("32 redundant"), std::string::npos) << error.what();
  }
  const Placement padded = contiguous_placement(256, 48, 288, false);
  EXPECT_EQ(std::ranges::count(padded.expert_of_slot, Placement::kEmptySlot), 32);
  EXPECT_EQ(padded.slots_per_rank(), 6);
  const Placement redundant = contiguous_placement(256, 72, 288, true);
  EXPECT_EQ(redundant.expert_of_slot.back(), 31);
  check_placement(redundant);
}

TEST(Placement, BrokenOnes_AreRefused) {
  EXPECT_THROW(check_placement({.num_experts = 2, .num_ranks = 1, .expert_of_slot = {0, 0}}), model::InputError);
  EXPECT_THROW(check_placement({.num_experts = 2, .num_ranks = 1, .expert_of_slot = {0, 2}}), model::InputError);
  EXPECT_THROW(check_placement({.num_experts = 2, .num_ranks = 2, .expert_of_slot = {0, 1, 1}}), model::InputError);
}

}  // namespace
}  // namespace simulator
