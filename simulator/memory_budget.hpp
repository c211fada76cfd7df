// What a GPU of a deployment has to hold, item by item, and how many cached tokens are left room for.
#pragma once

#include <string>
#include <vector>

#include "simulator/rank_layout.hpp"

namespace simulator {

struct MemoryItem {
  std::string name;
  double bytes = 0;
  std::string formula;
};

struct MemoryBudget {
  std::vector<MemoryItem> items;  // of the fullest GPU: weights, buffers, reserve; the cache of `sequences` last
  double total_bytes = 0;         // of the items, in their order
  double usable_bytes = 0;        // memory x fraction that the engine may fill
  double fixed_bytes = 0;         // all but the cache
  double cache_bytes_per_sequence = 0;
  double max_sequences = 0;  // of a DP rank; below 1: does not fit

  [[nodiscard]] bool fits() const { return max_sequences >= 1 && total_bytes <= usable_bytes; }
};

struct MemoryRequest {
  double sequences = 1;            // of a DP rank
  double tokens_per_sequence = 1;  // the most a sequence has in the cache: prompt and answer
  double prefill_chunk = 8192;     // tokens of one pass
  double memory_frac = 0.92;       // what engines leave nobody else by default: 0.85 to 0.92
};

MemoryBudget memory_budget(const model::ModelConfig& config,
                           const Hardware& hardware,
                           const RankLayout& rank,
                           const MemoryRequest& request);

}  // namespace simulator
