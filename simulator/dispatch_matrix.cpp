#include "simulator/dispatch_matrix.hpp"

#include <set>

#include "model/check.hpp"

namespace simulator {

DispatchMatrix dispatch_matrix(const TraceLayer& layer, const Placement& placement, int64_t ranks_per_node) {
  check_placement(placement);
  CHECK(ranks_per_node > 0);
  const auto num_ranks = static_cast<size_t>(placement.num_ranks);
  std::vector<std::vector<int64_t>> ranks_of(static_cast<size_t>(placement.num_experts));
  for (int64_t slot = 0; slot < placement.num_slots(); ++slot) {
    const int64_t expert = placement.expert_of_slot[static_cast<size_t>(slot)];
    if (expert != Placement::kEmptySlot) {
      ranks_of[static_cast<size_t>(expert)].push_back(placement.rank_of_slot(slot));
    }
  }
  DispatchMatrix matrix{.num_ranks = placement.num_ranks, .copies = {}, .tokens = {}, .node_copies_sent = {}};
  matrix.copies.assign(num_ranks, std::vector<int64_t>(num_ranks, 0));
  matrix.tokens = matrix.copies;
  matrix.node_copies_sent.assign(num_ranks, 0);
  const int64_t tokens_per_rank =
      (static_cast<int64_t>(layer.tokens.size()) + placement.num_ranks - 1) / placement.num_ranks;
  for (size_t i = 0; i < layer.tokens.size(); ++i) {
    const RoutedToken& token = layer.tokens[i];
    const int64_t from = token.rank >= 0 ? token.rank : static_cast<int64_t>(i) / tokens_per_rank;
    if (from >= placement.num_ranks) {
      model::throw_input_error("routing trace: a token on rank {}, expected 0 to {}", from, placement.num_ranks - 1);
    }
    std::set<int64_t> reached;
    std::set<int64_t> nodes;
    for (const int64_t expert : token.experts) {
      if (expert < 0 || expert >= placement.num_experts) {
        model::throw_input_error("routing trace: expert {}, expected 0 to {}", expert, placement.num_experts - 1);
      }
      const std::vector<int64_t>& ranks = ranks_of[static_cast<size_t>(expert)];
      const int64_t to = ranks[i % ranks.size()];
      ++matrix.copies[static_cast<size_t>(from)][static_cast<size_t>(to)];
      reached.insert(to);
      nodes.insert(to / ranks_per_node);
    }
    for (const int64_t to : reached) {
      ++matrix.tokens[static_cast<size_t>(from)][static_cast<size_t>(to)];
    }
    nodes.erase(from / ranks_per_node);
    matrix.node_copies_sent[static_cast<size_t>(from)] += static_cast<int64_t>(nodes.size());
  }
  return matrix;
}

}  // namespace simulator
