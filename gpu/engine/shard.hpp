// What of the model one rank holds and computes, and how large it is there.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/parallel_plan.hpp"

namespace gpu {

struct Shard {
  int64_t tp = 1;
  int64_t tp_rank = 0;
  int64_t ep = 1;
  int64_t ep_rank = 0;
  int64_t num_heads = 0;
  model::IndexRange vocab;    // rows of the embedding and of the head
  int64_t dense_dim = 0;      // of the intermediate dimension of dense layers
  int64_t shared_dim = 0;     // of that of the shared expert
  model::IndexRange experts;  // routed ones, whole
  model::IndexRange layers;   // MTP layers included, from num_hidden_layers
  bool is_first_stage = true;
  bool is_last_stage = true;

  [[nodiscard]] int64_t num_experts() const { return experts.end - experts.begin; }
  // Tensor-parallel ranks have the same tokens and share them out for the routed experts: the last ones may have fewer, or none.
  struct Share {
    int64_t first = 0;
    int64_t count = 0;
  };
  [[nodiscard]] int64_t share_len(int64_t rows) const { return (rows + tp - 1) / tp; }
  [[nodiscard]] Share share(int64_t rows) const {
    const int64_t first = std::min(rows, tp_rank * share_len(rows));
    return {first, std::min(share_len(rows), rows - first)};
  }
};

// Throws InputError for a layout that the engine does not run: experts that are cut (ep below tp in a model that has experts).
Shard shard_of(const model::ParallelPlan& plan, int64_t rank);

}  // namespace gpu
