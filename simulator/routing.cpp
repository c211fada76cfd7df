#include "simulator/routing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/check.hpp"

namespace simulator {
namespace {

// C(available - taken, chosen) / C(available, chosen): the chance that a choice avoids `taken` items.
double chance_to_avoid(int64_t available, int64_t taken, int64_t chosen) {
  double chance = 1;
  for (int64_t i = 0; i < chosen; ++i) {
    chance *= static_cast<double>(std::max<int64_t>(available - taken - i, 0)) / static_cast<double>(available - i);
  }
  return chance;
}

// Chance that a token chooses no expert of a node that holds `held[g]` experts of each group.
double chance_to_miss(const Router& router, const std::vector<int64_t>& held) {
  const int64_t group_len = router.num_experts / router.num_groups;
  const int64_t num_available = group_len * router.kept_groups;
  const auto num_kept = static_cast<size_t>(router.kept_groups);
  // chance[j][x]: that after the groups seen so far j are kept, and the node holds x experts in them.
  std::vector<std::vector<double>> chance(num_kept + 1,
                                          std::vector<double>(static_cast<size_t>(num_available) + 1, 0.0));
  chance[0][0] = 1;
  for (int64_t group = 0; group < router.num_groups; ++group) {
    const auto added = static_cast<size_t>(held[static_cast<size_t>(group)]);
    const auto num_left = static_cast<double>(router.num_groups - group);
    for (size_t j = std::min(num_kept, static_cast<size_t>(group)) + 1; j-- > 0;) {
      const double keep = (static_cast<double>(num_kept) - static_cast<double>(j)) / num_left;
      for (size_t x = 0; x <= static_cast<size_t>(num_available); ++x) {
        const double mass = chance[j][x];
        if (mass > 0) {
          chance[j][x] = mass * (1 - keep);
          if (keep > 0) {
            chance[j + 1][x + added] += mass * keep;
          }
        }
      }
    }
  }
  double miss = 0;
  for (int64_t x = 0; x <= num_available; ++x) {
    miss += chance[num_kept][static_cast<size_t>(x)] * chance_to_avoid(num_available, x, router.experts_per_token);
  }
  return miss;
}

// Experts of each group on each node.
std::vector<std::vector<int64_t>> experts_by_node(const Router& router, int64_t ep, int64_t gpus_per_node) {
  CHECK(router.num_experts > 0 && router.num_experts % router.num_groups == 0 && ep > 0 && gpus_per_node > 0);
  const int64_t num_nodes = (ep + gpus_per_node - 1) / gpus_per_node;
  const int64_t group_len = router.num_experts / router.num_groups;
  std::vector<std::vector<int64_t>> held(static_cast<size_t>(num_nodes),
                                         std::vector<int64_t>(static_cast<size_t>(router.num_groups), 0));
  for (int64_t expert = 0; expert < router.num_experts; ++expert) {
    const int64_t node = expert * ep / router.num_experts / gpus_per_node;
    ++held[static_cast<size_t>(node)][static_cast<size_t>(expert / group_len)];
  }
  return held;
}

}  // namespace

double expected_active_experts(int64_t num_experts, int64_t experts_per_token, int64_t num_tokens) {
  if (num_experts == 0) {
    return 0;
  }
  const auto all = static_cast<double>(num_experts);
  const double miss = 1 - static_cast<double>(experts_per_token) / all;
  return all * (1 - std::pow(miss, static_cast<double>(num_tokens)));
}

std::vector<Node> expert_nodes(const Router& router, int64_t ep, int64_t gpus_per_node) {
  std::vector<Node> nodes;
  for (const std::vector<int64_t>& held : experts_by_node(router, ep, gpus_per_node)) {
    const int64_t first_rank = static_cast<int64_t>(nodes.size()) * gpus_per_node;
    nodes.push_back({.num_ranks = std::min(gpus_per_node, ep - first_rank),
                     .num_experts = std::accumulate(held.begin(), held.end(), int64_t{0}),
                     .hit_chance = 1 - chance_to_miss(router, held)});
  }
  return nodes;
}

int64_t most_nodes(const Router& router, int64_t ep, int64_t gpus_per_node) {
  const auto held = experts_by_node(router, ep, gpus_per_node);
  std::vector<int64_t> span(static_cast<size_t>(router.num_groups), 0);  // nodes that hold experts of the group
  for (const std::vector<int64_t>& node : held) {
    for (size_t group = 0; group < span.size(); ++group) {
      span[group] += node[group] > 0 ? 1 : 0;
    }
  }
  std::ranges::sort(span, std::greater<>());
  const int64_t reachable = std::accumulate(span.begin(), span.begin() + router.kept_groups, int64_t{0});
  return std::min({reachable, router.experts_per_token, static_cast<int64_t>(held.size())});
}

double CapacityCount::dropped_frac() const {
  return static_cast<double>(num_dropped) / static_cast<double>(num_copies);
}

double CapacityCount::padding_frac() const {
  return static_cast<double>(num_padding) / static_cast<double>(num_copies - num_dropped + num_padding);
}

CapacityCount count_capacity(const std::vector<int64_t>& load, double factor) {
  if (!(factor > 0) || factor > 1e6) {
    model::throw_input_error("capacity factor {}: expected a number above 0 and up to 1e6, for example 1.25", factor);
  }
  CapacityCount count;
  count.num_copies = std::accumulate(load.begin(), load.end(), int64_t{0});
  if (count.num_copies == 0) {
    model::throw_input_error("load: expected a count of token copies for each expert, not all 0");
  }
  count.max_load = *std::ranges::max_element(load);
  const double mean = static_cast<double>(count.num_copies) / static_cast<double>(load.size());
  count.capacity = static_cast<int64_t>(std::ceil(factor * mean));
  for (const int64_t copies : load) {
    count.num_padding += std::max<int64_t>(count.capacity - copies, 0);
    count.num_dropped += std::max<int64_t>(copies - count.capacity, 0);
  }
  return count;
}

}  // namespace simulator
