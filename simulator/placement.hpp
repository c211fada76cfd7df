// Which experts a rank holds: every rank has the same number of slots, a slot holds one expert, an expert may be in several slots.
#pragma once

#include <cstdint>
#include <vector>

namespace simulator {

struct Placement {
  int64_t num_experts = 0;
  int64_t num_ranks = 0;
  std::vector<int64_t> expert_of_slot;  // [num_ranks * slots_per_rank]; kEmptySlot: nothing there

  static constexpr int64_t kEmptySlot = -1;

  [[nodiscard]] int64_t num_slots() const { return static_cast<int64_t>(expert_of_slot.size()); }
  [[nodiscard]] int64_t slots_per_rank() const { return num_slots() / num_ranks; }
  [[nodiscard]] int64_t rank_of_slot(int64_t slot) const { return slot / slots_per_rank(); }
};

// Experts in order, `num_slots / num_ranks` of them on a rank. `num_slots` beyond `num_experts` hold experts 0, 1, ... again when
// `redundant`, else stay empty (padding). Throws InputError, saying which number of slots would work, when num_slots is below
// num_experts or no multiple of num_ranks.
Placement contiguous_placement(int64_t num_experts, int64_t num_ranks, int64_t num_slots, bool redundant);

// Throws InputError: a slot that holds no known expert, an expert in no slot, slots that do not divide.
void check_placement(const Placement& placement);

}  // namespace simulator
