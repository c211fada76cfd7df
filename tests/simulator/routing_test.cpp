#include "simulator/routing.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "model/check.hpp"

namespace simulator {
namespace {

// Every choice of groups and of experts in them, each equally likely.
double brute_force_nodes(const Router& router, int64_t ep, int64_t gpus_per_node, int64_t* most) {
  const int64_t group_len = router.num_experts / router.num_groups;
  double sum = 0;
  int64_t num_choices = 0;
  for (uint32_t groups = 0; groups < 1U << router.num_groups; ++groups) {
    if (std::popcount(groups) != router.kept_groups) {
      continue;
    }
    for (uint32_t experts = 0; experts < 1U << router.num_experts; ++experts) {
      if (std::popcount(experts) != router.experts_per_token) {
        continue;
      }
      std::set<int64_t> nodes;
      bool allowed = true;
      for (int64_t expert = 0; expert < router.num_experts; ++expert) {
        if ((experts >> expert & 1U) != 0) {
          allowed = allowed && (groups >> (expert / group_len) & 1U) != 0;
          nodes.insert(expert * ep / router.num_experts / gpus_per_node);
        }
      }
      if (allowed) {
        sum += static_cast<double>(nodes.size());
        *most = std::max(*most, static_cast<int64_t>(nodes.size()));
        ++num_choices;
      }
    }
  }
  return sum / static_cast<double>(num_choices);
}

TEST(Routing, ExpectedNodes_EqualEnumeration) {
  const Router router{.num_experts = 12, .experts_per_token = 3, .num_groups = 4, .kept_groups = 2};
  for (const auto& [ep, gpus_per_node] :
       {std::pair<int64_t, int64_t>{4, 1}, {12, 3}, {6, 2}, {5, 2}, {12, 1}, {2, 1}, {7, 3}}) {
    int64_t most = 0;
    const double expected = brute_force_nodes(router, ep, gpus_per_node, &most);
    double nodes = 0;
    int64_t num_experts = 0;
    int64_t num_ranks = 0;
    for (const Node& node : expert_nodes(router, ep, gpus_per_node)) {
      nodes += node.hit_chance;
      num_experts += node.num_experts;
      num_ranks += node.num_ranks;
    }
    EXPECT_NEAR(nodes, expected, 1e-12) << ep << " " << gpus_per_node;
    EXPECT_EQ(num_experts, 12);
    EXPECT_EQ(num_ranks, ep);
    EXPECT_GE(most_nodes(router, ep, gpus_per_node), most) << ep << " " << gpus_per_node;
  }
}

// 4 nodes of 8 are reachable; each is missed with chance C(96, 8) / C(128, 8), worked out with exact fractions.
TEST(Routing, DeepSeekV3On8Nodes_ReachesAtMost4) {
  const Router router{.num_experts = 256, .experts_per_token = 8, .num_groups = 8, .kept_groups = 4};
  double nodes = 0;
  for (const Node& node : expert_nodes(router, 64, 8)) {
    nodes += node.hit_chance;
  }
  EXPECT_NEAR(nodes, 3.6290109244257, 1e-12);
  EXPECT_EQ(most_nodes(router, 64, 8), 4);
}

TEST(Routing, ActiveExperts_RunFromKToAll) {
  EXPECT_NEAR(expected_active_experts(256, 8, 1), 8, 1e-12);
  EXPECT_NEAR(expected_active_experts(8, 2, 2), 8 - 8 * 0.75 * 0.75, 1e-12);
  EXPECT_NEAR(expected_active_experts(256, 8, 100000), 256, 1e-9);
  EXPECT_EQ(expected_active_experts(256, 8, 0), 0);
  EXPECT_EQ(expected_active_experts(0, 0, 5), 0);
}

TEST(Capacity, SkewedLoad_FillsAndDrops) {
  const CapacityCount count = count_capacity({10, 6, 0, 0}, 1.0);
  EXPECT_EQ(count.capacity, 4);
  EXPECT_EQ(count.num_dropped, 6 + 2);
  EXPECT_EQ(count.num_padding, 4 + 4);
  EXPECT_EQ(count.dropped_frac(), 0.5);
  EXPECT_EQ(count.padding_frac(), 0.5);
}

TEST(Capacity, FractionOfASlot_IsRoundedUp) {
  EXPECT_EQ(count_capacity({3, 2, 2}, 1.25).capacity, 3);  // 1.25 * 7 / 3 = 2.92
  const CapacityCount count = count_capacity({3, 2, 2}, 1.25);
  EXPECT_EQ(count.num_dropped, 0);
  EXPECT_EQ(count.num_padding, 2);
}

TEST(Capacity, NonsenseIsRefused) {
  EXPECT_THROW(count_capacity({0, 0}, 1.25), model::InputError);
  EXPECT_THROW(count_capacity({}, 1.25), model::InputError);
  EXPECT_THROW(count_capacity({1, 2}, 0), model::InputError);
  EXPECT_THROW(count_capacity({1, 2}, -1), model::InputError);
}

}  // namespace
}  // namespace simulator
