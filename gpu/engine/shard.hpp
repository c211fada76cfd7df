// What of the model one rank holds and computes, and how large it is there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/parallel_plan.hpp"

namespace gpu {

inline constexpr int64_t kMaxTensorRanks = 64;

struct Shard {
  int64_t tp = 1;  // at most kMaxTensorRanks
  int64_t tp_rank = 0;
  int64_t ep = 1;
  int64_t ep_rank = 0;
  int64_t expert_tp = 1;           // ranks that share one expert
  bool sequence_parallel = false;  // norms, residual stream and router: of the rank's share of the rows
  int64_t num_heads = 0;
  model::IndexRange vocab;                    // rows of the embedding and of the head
  int64_t dense_dim = 0;                      // of the intermediate dimension of dense layers
  int64_t shared_dim = 0;                     // of that of the shared expert
  int64_t expert_dim = 0;                     // of that of a routed expert
  int64_t num_experts = 0;                    // slots for routed experts, in each layer that has them
  std::vector<std::vector<int64_t>> experts;  // by layer, of this rank's stage: the expert in each slot
  model::IndexRange layers;                   // MTP layers included, from num_hidden_layers
  bool is_first_stage = true;
  bool is_last_stage = true;

  // Ranks that exchange tokens for the routed experts: 1 where the rank has all of each.
  [[nodiscard]] int64_t num_exchanging() const { return ep * expert_tp; }
  // Tensor-parallel ranks have the same tokens and share them out for the routed experts: the last ones may have fewer, or none.
  struct Share {
    int64_t first = 0;
    int64_t count = 0;
  };
  [[nodiscard]] int64_t share_len(int64_t rows) const { return (rows + tp - 1) / tp; }
  [[nodiscard]] Share share_of(int64_t rank, int64_t rows) const {
    const int64_t first = std::min(rows, rank * share_len(rows));
    return {first, std::min(share_len(rows), rows - first)};
  }
  [[nodiscard]] Share share(int64_t rows) const { return share_of(tp_rank, rows); }
  // True for an op of which the rank computes its share of the rows.
  [[nodiscard]] bool has_share_of(const model::Op& op) const {
    return sequence_parallel ? model::is_cut_over_rows(op) : tp > 1 && op.kind == model::OpKind::kMoeOutput;
  }
  // Rows of the residual stream that the rank has.
  [[nodiscard]] Share stream_rows(int64_t rows) const { return sequence_parallel ? share(rows) : Share{0, rows}; }
};

// Throws InputError for a layout that the engine does not run: a placement of experts that are cut, or for one rank alone.
Shard shard_of(const model::ParallelPlan& plan, int64_t rank);

}  // namespace gpu
