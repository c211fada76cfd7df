#include "simulator/eplb.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "model/check.hpp"

namespace simulator {
namespace {

// Pack of each item.
std::vector<size_t> pack(const std::vector<double>& weights, size_t num_packs) {
  const size_t room = weights.size() / num_packs;
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<size_t> pack_of(weights.size());
  if (room == 1) {
    return order;
  }
  std::ranges::stable_sort(order, [&](size_t left, size_t right) { return weights[left] > weights[right]; });
  std::vector<double> filled(num_packs, 0.0);
  std::vector<size_t> num_items(num_packs, 0);
  for (const size_t item : order) {
    size_t lightest = num_packs;
    for (size_t candidate = 0; candidate < num_packs; ++candidate) {
      if (num_items[candidate] < room && (lightest == num_packs || filled[candidate] < filled[lightest])) {
        lightest = candidate;
      }
    }
    pack_of[item] = lightest;
    filled[lightest] += weights[item];
    ++num_items[lightest];
  }
  return pack_of;
}

// Items of each pack, in the order in which they were packed (heaviest first).
std::vector<std::vector<size_t>> packed(const std::vector<double>& weights, size_t num_packs) {
  const std::vector<size_t> pack_of = pack(weights, num_packs);
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (weights.size() > num_packs) {
    std::ranges::stable_sort(order, [&](size_t left, size_t right) { return weights[left] > weights[right]; });
  }
  std::vector<std::vector<size_t>> packs(num_packs);
  for (const size_t item : order) {
    packs[pack_of[item]].push_back(item);
  }
  return packs;
}

// Expert of each of `num_copies` copies: first every expert once, then the extra ones.
std::vector<size_t> copied(const std::vector<double>& load, size_t num_copies) {
  std::vector<size_t> expert_of_copy(load.size());
  std::iota(expert_of_copy.begin(), expert_of_copy.end(), size_t{0});
  std::vector<double> copies(load.size(), 1.0);
  while (expert_of_copy.size() < num_copies) {
    size_t fullest = 0;
    for (size_t expert = 1; expert < load.size(); ++expert) {
      if (load[expert] / copies[expert] > load[fullest] / copies[fullest]) {
        fullest = expert;
      }
    }
    copies[fullest] += 1;
    expert_of_copy.push_back(fullest);
  }
  return expert_of_copy;
}

std::vector<double> load_per_copy(const std::vector<double>& load, const std::vector<size_t>& expert_of_copy) {
  std::vector<double> copies(load.size(), 0.0);
  for (const size_t expert : expert_of_copy) {
    copies[expert] += 1;
  }
  std::vector<double> shares;
  for (const size_t expert : expert_of_copy) {
    shares.push_back(load[expert] / copies[expert]);
  }
  return shares;
}

void check_shape(size_t num_experts, const EplbShape& shape) {
  if (shape.num_ranks < 1 || shape.num_nodes < 1 || shape.num_groups < 1 || num_experts < 1 ||
      shape.num_slots < static_cast<int64_t>(num_experts) || shape.num_slots % shape.num_ranks != 0) {
    const int64_t ranks = std::max<int64_t>(shape.num_ranks, 1);
    const int64_t least = (static_cast<int64_t>(num_experts) + ranks - 1) / ranks * ranks;
    model::throw_input_error("EPLB of {} experts in {} slots on {} ranks: expected a multiple of the ranks, {} or more",
                             num_experts,
                             shape.num_slots,
                             shape.num_ranks,
                             least);
  }
  if (static_cast<int64_t>(num_experts) % shape.num_groups != 0 || shape.num_ranks % shape.num_nodes != 0) {
    model::throw_input_error("EPLB: {} experts in {} groups, {} ranks on {} nodes: expected whole numbers of each",
                             num_experts,
                             shape.num_groups,
                             shape.num_ranks,
                             shape.num_nodes);
  }
}

}  // namespace

EplbShape eplb_shape(int64_t num_slots, int64_t num_groups, int64_t num_ranks, int64_t ranks_per_domain) {
  return {.num_slots = num_slots,
          .num_groups = num_groups,
          .num_nodes = num_ranks % ranks_per_domain == 0 ? num_ranks / ranks_per_domain : 1,
          .num_ranks = num_ranks};
}

Placement eplb_placement(const std::vector<double>& load, const EplbShape& shape) {
  check_shape(load.size(), shape);
  const bool is_hierarchical = shape.num_groups % shape.num_nodes == 0 && shape.num_slots % shape.num_nodes == 0;
  const size_t num_groups = is_hierarchical ? static_cast<size_t>(shape.num_groups) : 1;
  const size_t num_nodes = is_hierarchical ? static_cast<size_t>(shape.num_nodes) : 1;
  const size_t group_len = load.size() / num_groups;
  std::vector<double> group_load(num_groups, 0.0);
  for (size_t expert = 0; expert < load.size(); ++expert) {
    group_load[expert / group_len] += load[expert];
  }
  Placement placement{
      .num_experts = static_cast<int64_t>(load.size()), .num_ranks = shape.num_ranks, .expert_of_slot = {}};
  for (const std::vector<size_t>& groups : packed(group_load, num_nodes)) {
    std::vector<size_t> experts;
    std::vector<double> node_load;
    for (const size_t group : groups) {
      for (size_t i = 0; i < group_len; ++i) {
        experts.push_back(group * group_len + i);
        node_load.push_back(load[experts.back()]);
      }
    }
    const std::vector<size_t> copies = copied(node_load, static_cast<size_t>(shape.num_slots) / num_nodes);
    const size_t ranks_of_node = static_cast<size_t>(shape.num_ranks) / num_nodes;
    for (const std::vector<size_t>& rank : packed(load_per_copy(node_load, copies), ranks_of_node)) {
      for (const size_t copy : rank) {
        placement.expert_of_slot.push_back(static_cast<int64_t>(experts[copies[copy]]));
      }
    }
  }
  return placement;
}

std::vector<double> rank_loads(const std::vector<double>& load, const Placement& placement) {
  CHECK_EQ(static_cast<int64_t>(load.size()), placement.num_experts);
  std::vector<double> copies(load.size(), 0.0);
  for (const int64_t expert : placement.expert_of_slot) {
    if (expert != Placement::kEmptySlot) {
      copies[static_cast<size_t>(expert)] += 1;
    }
  }
  std::vector<double> loads(static_cast<size_t>(placement.num_ranks), 0.0);
  for (int64_t slot = 0; slot < placement.num_slots(); ++slot) {
    const int64_t expert = placement.expert_of_slot[static_cast<size_t>(slot)];
    if (expert != Placement::kEmptySlot) {
      loads[static_cast<size_t>(placement.rank_of_slot(slot))] +=
          load[static_cast<size_t>(expert)] / copies[static_cast<size_t>(expert)];
    }
  }
  return loads;
}

double max_over_mean(const std::vector<double>& loads) {
  CHECK(!loads.empty());
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  return sum > 0 ? *std::ranges::max_element(loads) * static_cast<double>(loads.size()) / sum : 1;
}

}  // namespace simulator
