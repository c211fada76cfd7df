#include "simulator/layer_traffic.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "model/check.hpp"
#include "simulator/expert_sampler.hpp"

namespace simulator {
namespace {

// The experts of a few hundred tokens, routed one by one; [tokens][k]. A search asks for the same layers again for every layout and
// number of tokens, so the last ones are kept.
const std::vector<std::vector<int64_t>>& routed_tokens(const Router& router,
                                                       const std::vector<double>& popularity,
                                                       uint64_t seed) {
  constexpr int64_t kTokens = 256;
  constexpr int64_t kStream = 3;
  constexpr size_t kMostKept = 256;
  thread_local std::map<std::vector<double>, std::vector<std::vector<int64_t>>> kept;
  std::vector<double> key = popularity;
  for (const int64_t value : {router.experts_per_token,
                              router.num_groups,
                              router.kept_groups,
                              static_cast<int64_t>(seed >> 32),
                              static_cast<int64_t>(seed & 0xffffffff)}) {
    key.push_back(static_cast<double>(value));  // exactly
  }
  if (const auto known = kept.find(key); known != kept.end()) {
    return known->second;
  }
  if (kept.size() == kMostKept) {
    kept.clear();
  }
  CounterRandom random(seed, kStream);
  std::vector<std::vector<int64_t>> tokens;
  for (int64_t token = 0; token < kTokens; ++token) {
    tokens.push_back(route_token(router, popularity, {}, random));
  }
  return kept.emplace(std::move(key), std::move(tokens)).first->second;
}

// Share of tokens with at least one expert on each node. [num_nodes]
std::vector<double> measured_reach(const std::vector<std::vector<int64_t>>& tokens,
                                   const Placement& placement,
                                   int64_t ranks_per_node,
                                   int64_t num_nodes) {
  std::vector<int64_t> node_of_expert(static_cast<size_t>(placement.num_experts), 0);  // of its first copy
  for (int64_t slot = placement.num_slots() - 1; slot >= 0; --slot) {
    const int64_t expert = placement.expert_of_slot[static_cast<size_t>(slot)];
    if (expert != Placement::kEmptySlot) {
      node_of_expert[static_cast<size_t>(expert)] = placement.rank_of_slot(slot) / ranks_per_node;
    }
  }
  std::vector<double> reach(static_cast<size_t>(num_nodes), 0.0);
  std::vector<bool> is_hit(reach.size());
  const double share = 1 / static_cast<double>(tokens.size());
  for (const std::vector<int64_t>& token : tokens) {
    is_hit.assign(reach.size(), false);
    for (const int64_t expert : token) {
      is_hit[static_cast<size_t>(node_of_expert[static_cast<size_t>(expert)])] = true;
    }
    for (size_t node = 0; node < reach.size(); ++node) {
      reach[node] += is_hit[node] ? share : 0.0;
    }
  }
  return reach;
}

}  // namespace

LayerTraffic::LayerTraffic(const AllToAll& all_to_all,
                           AllToAllBackend backend,
                           const Router& router,
                           const Placement& placement,
                           double tokens_per_rank,
                           const std::vector<double>& popularity,
                           uint64_t seed)
    : backend_(backend),
      num_ranks_(placement.num_ranks),
      ranks_per_node_(all_to_all.ranks_per_node()),
      num_nodes_(all_to_all.num_nodes()),
      tokens_per_rank_(tokens_per_rank),
      experts_per_token_(router.experts_per_token),
      placement_(placement) {
  check_placement(placement);
  copies_of_expert_.assign(static_cast<size_t>(placement.num_experts), 0);
  for (const int64_t expert : placement.expert_of_slot) {
    copy_of_slot_.push_back(expert == Placement::kEmptySlot ? 0 : copies_of_expert_[static_cast<size_t>(expert)]++);
  }
  if (num_nodes_ > 1 && network_deduplication(backend) == Deduplication::kPerNode &&
      router.kept_groups < router.num_groups) {
    reach_ = measured_reach(routed_tokens(router, popularity, seed), placement, ranks_per_node_, num_nodes_);
  }
}

std::vector<RankLoad> LayerTraffic::loads(const std::vector<int64_t>& expert_counts, int64_t first_copy) const {
  CHECK_EQ(static_cast<int64_t>(expert_counts.size()), placement_.num_experts);
  std::vector<RankLoad> loads(static_cast<size_t>(num_ranks_));
  const auto per_rank = static_cast<size_t>(placement_.slots_per_rank());
  for (size_t slot = 0; slot < placement_.expert_of_slot.size(); ++slot) {
    const int64_t id = placement_.expert_of_slot[slot];
    if (id == Placement::kEmptySlot) {
      continue;
    }
    const auto expert = static_cast<size_t>(id);
    const int64_t copies = copies_of_expert_[expert];
    const int64_t count = expert_counts[expert];
    const int64_t share =
        copies == 1 ? count : count / copies + ((copy_of_slot_[slot] + first_copy) % copies < count % copies ? 1 : 0);
    RankLoad& load = loads[slot / per_rank];
    load.num_tokens += share;
    load.num_active_experts += share > 0 ? 1 : 0;
    load.padded_rows += (share + kTileRows - 1) / kTileRows * kTileRows;
  }
  for (RankLoad& load : loads) {
    load.rows_per_expert = load.num_active_experts > 0
                               ? static_cast<double>(load.num_tokens) / static_cast<double>(load.num_active_experts)
                               : 0;
  }
  return loads;
}

double LayerTraffic::node_reach(size_t node, double node_share) const {
  return reach_.empty() ? 1 - std::pow(1 - node_share, static_cast<double>(experts_per_token_)) : reach_[node];
}

std::vector<TierCopies> LayerTraffic::copies(const std::vector<double>& rank_rows) const {
  CHECK_EQ(static_cast<int64_t>(rank_rows.size()), num_ranks_);
  const auto ranks = static_cast<double>(num_ranks_);
  const double own_tokens = tokens_per_rank_;
  const double own_copies = own_tokens * static_cast<double>(experts_per_token_);
  const double all_copies = std::accumulate(rank_rows.begin(), rank_rows.end(), 0.0);
  std::vector<double> node_share(static_cast<size_t>(num_nodes_), 0.0);
  std::vector<double> ranks_of(static_cast<size_t>(num_nodes_), 0.0);
  for (size_t rank = 0; rank < rank_rows.size(); ++rank) {
    const auto node = static_cast<size_t>(node_of(static_cast<int64_t>(rank)));
    node_share[node] += all_copies > 0 ? rank_rows[rank] / all_copies : 0;
    ranks_of[node] += 1;
  }
  double reached_nodes = 0;
  for (size_t node = 0; node < node_share.size(); ++node) {
    reached_nodes += node_reach(node, node_share[node]);
  }
  // Chance that a token has a copy on the rank; its sum is how many ranks a token reaches.
  std::vector<double> rank_reach;
  double reached_ranks = 0;
  if (nvlink_deduplication(backend_) == Deduplication::kPerRank) {
    for (const double rows : rank_rows) {
      const double share = all_copies > 0 ? rows / all_copies : 0;
      rank_reach.push_back(1 - std::pow(1 - share, static_cast<double>(experts_per_token_)));
      reached_ranks += rank_reach.back();
    }
  }
  std::vector<TierCopies> copies(rank_rows.size());
  for (size_t rank = 0; rank < rank_rows.size(); ++rank) {
    const auto node = static_cast<size_t>(node_of(static_cast<int64_t>(rank)));
    const double in_node = ranks_of[node];
    const double rows = rank_rows[rank];
    const double rank_share = all_copies > 0 ? rows / all_copies : 0;
    TierCopies& tier = copies[rank];
    switch (network_deduplication(backend_)) {
      case Deduplication::kPerCopy:
        tier.network = std::max(rows * (1 - in_node / ranks), own_copies * (1 - node_share[node]));
        break;
      case Deduplication::kEverything: tier.network = own_tokens * (ranks - in_node); break;
      default: {
        const double here = node_reach(node, node_share[node]);
        tier.network = std::max(own_tokens * (reached_nodes - here), own_tokens * (ranks - in_node) * here / in_node);
      }
    }
    switch (nvlink_deduplication(backend_)) {
      case Deduplication::kPerCopy: {
        const bool is_forwarded = network_deduplication(backend_) != Deduplication::kPerCopy;
        const double received = rows * ((is_forwarded ? ranks : in_node) - 1) / ranks;
        const double sent = own_copies * ((is_forwarded ? 1 : node_share[node]) - rank_share);
        tier.nvlink = std::max(received, sent);
        break;
      }
      case Deduplication::kPerRank:
        tier.nvlink = std::max(ranks * own_tokens * rank_reach[rank], own_tokens * reached_ranks);
        break;
      default: tier.nvlink = own_tokens * (num_nodes_ > 1 ? ranks : ranks - 1);
    }
    if (num_nodes_ == 1) {
      tier.network = 0;
    }
  }
  return copies;
}

}  // namespace simulator
