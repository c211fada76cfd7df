// Where the routed experts of a layer lie: which ranks hold a copy of each, and where among the rank's own. As tables for kernels, and
// as lists on the host, which also counts what a routing makes ranks send to each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/portable/backend.hpp"

namespace gpu {

// The lists of an ExpertPlacement on the device.
struct ExpertPlaces {
  const int32_t* first_copy = nullptr;  // [num_experts + 1]: into place_of_copy
  const int32_t* place_of_copy = nullptr;
  int num_experts = 0;
  int slots_per_rank = 0;
};

// Which of an expert's copies a token goes to: by turns, over the tokens of a rank and over ranks.
GPU_BOTH int32_t chosen_copy(int32_t num_copies, int64_t token, int rank) {
  return static_cast<int32_t>((token + rank) % num_copies);
}

struct ExpertPlacement {
  std::vector<int32_t> first_copy;     // [num_experts + 1]: into place_of_copy
  std::vector<int32_t> place_of_copy;  // rank * slots_per_rank + slot of that rank, ascending for each expert
  int num_ranks = 0;
  int slots_per_rank = 0;  // some may be empty

  [[nodiscard]] int num_experts() const { return static_cast<int>(first_copy.size()) - 1; }
  [[nodiscard]] int32_t place(int32_t expert, int64_t token, int rank) const {
    const int32_t begin = first_copy[static_cast<size_t>(expert)];
    const int32_t end = first_copy[static_cast<size_t>(expert) + 1];
    const int32_t copy = begin + chosen_copy(end - begin, token, rank);
    return place_of_copy[static_cast<size_t>(copy)];
  }
};

// Expert e belongs to rank floor(e * num_ranks / num_experts): model/parallel_plan.hpp.
ExpertPlacement contiguous_placement(int num_experts, int num_ranks);
// From the expert in each slot of each rank, rank 0's first (SGLang's physical_to_logical_map); -1: an empty slot. Throws ArgumentError
// when the slots do not divide, an id is no expert, or an expert has no slot.
ExpertPlacement placement_of_slots(std::span<const int32_t> expert_of_slot, int num_experts, int num_ranks);

// How many of one rank's tokens go to each target, once however many of its experts they chose: to each rank, itself included, or to
// each node of `ranks_per_target` ranks. topk_ids: [num_tokens, k]; ids outside the experts are padding.
std::vector<int64_t> count_copies(
    const ExpertPlacement& placement, std::span<const int32_t> topk_ids, int k, int rank, int ranks_per_target = 1);
// How many rows of the experts' output come back from each rank.
std::vector<int64_t> count_rows(const ExpertPlacement& placement, std::span<const int32_t> topk_ids, int k, int rank);

// Bytes to one target. Besides the copies, a rank says for every token that could be there which slots it is for, and raises a flag.
struct ExchangeSizes {
  int64_t hidden = 0;
  int64_t max_tokens = 0;
  int k = 0;
  bool is_fp8 = true;

  [[nodiscard]] int64_t bytes_per_copy() const;  // codes with their scales, or BF16
  [[nodiscard]] int64_t bytes_per_row() const { return 2 * hidden; }
  [[nodiscard]] int64_t dispatch_bytes(int64_t num_copies) const;
  // With the number of each row.
  [[nodiscard]] int64_t combine_bytes(int64_t num_rows) const;
};

}  // namespace gpu
