#include "simulator/placement.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/check.hpp"

namespace simulator {

Placement contiguous_placement(int64_t num_experts, int64_t num_ranks, int64_t num_slots, bool redundant) {
  if (num_experts < 1 || num_ranks < 1) {
    model::throw_input_error("{} experts on {} ranks: expected at least one of each", num_experts, num_ranks);
  }
  if (num_slots < num_experts || num_slots % num_ranks != 0) {
    const int64_t fitting = (std::max(num_slots, num_experts) + num_ranks - 1) / num_ranks * num_ranks;
    model::throw_input_error(
        "{} expert slots on {} ranks do not hold {} experts evenly: {} redundant experts would (--redundant-experts "
        "{}), or, in dsv3-sim skew, {} empty slots (--pad)",
        num_slots,
        num_ranks,
        num_experts,
        fitting - num_experts,
        fitting - num_experts,
        fitting - num_experts);
  }
  Placement placement{.num_experts = num_experts, .num_ranks = num_ranks, .expert_of_slot = {}};
  placement.expert_of_slot.resize(static_cast<size_t>(num_slots), Placement::kEmptySlot);
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    if (slot < num_experts || redundant) {
      placement.expert_of_slot[static_cast<size_t>(slot)] = slot % num_experts;
    }
  }
  return placement;
}

void check_placement(const Placement& placement) {
  if (placement.num_ranks < 1 || placement.num_slots() % placement.num_ranks != 0) {
    model::throw_input_error(
        "placement: {} slots do not divide over {} ranks", placement.num_slots(), placement.num_ranks);
  }
  std::vector<bool> is_placed(static_cast<size_t>(std::max<int64_t>(placement.num_experts, 0)), false);
  for (const int64_t expert : placement.expert_of_slot) {
    if (expert < Placement::kEmptySlot || expert >= placement.num_experts) {
      model::throw_input_error("placement: expert {}, expected 0 to {}", expert, placement.num_experts - 1);
    }
    if (expert != Placement::kEmptySlot) {
      is_placed[static_cast<size_t>(expert)] = true;
    }
  }
  const auto missing = std::ranges::find(is_placed, false);
  if (missing != is_placed.end()) {
    model::throw_input_error("placement: expert {} is in no slot", missing - is_placed.begin());
  }
}

}  // namespace simulator
