#include "gpu/kernels/expert_places.hpp"

#include <fmt/format.h>

#include <set>

#include "gpu/portable/require.hpp"

namespace gpu {
namespace {

constexpr int64_t kFlagBytes = 4;
constexpr int64_t kIdBytes = 4;
constexpr int64_t kScaleBytes = 4;
constexpr int64_t kScaleLen = 128;  // elements of a row that share a scale

}  // namespace

ExpertPlacement contiguous_placement(int num_experts, int num_ranks) {
  const auto first_of = [&](int rank) { return (int64_t{rank} * num_experts + num_ranks - 1) / num_ranks; };
  const int slots_per_rank = (num_experts + num_ranks - 1) / num_ranks;
  std::vector<int32_t> expert_of_slot;
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int slot = 0; slot < slots_per_rank; ++slot) {
      const int64_t expert = first_of(rank) + slot;
      expert_of_slot.push_back(expert < first_of(rank + 1) ? static_cast<int32_t>(expert) : -1);
    }
  }
  return placement_of_slots(expert_of_slot, num_experts, num_ranks);
}

ExpertPlacement placement_of_slots(std::span<const int32_t> expert_of_slot, int num_experts, int num_ranks) {
  const auto num_slots = static_cast<int>(expert_of_slot.size());
  if (num_experts < 1 || num_ranks < 1 || num_slots % num_ranks != 0) {
    throw ArgumentError(
        fmt::format("a placement of {} experts in {} slots on {} ranks", num_experts, num_slots, num_ranks));
  }
  std::vector<std::vector<int32_t>> places(static_cast<size_t>(num_experts));
  for (int slot = 0; slot < num_slots; ++slot) {
    const int32_t expert = expert_of_slot[static_cast<size_t>(slot)];
    if (expert < -1 || expert >= num_experts) {
      throw ArgumentError(fmt::format("slot {} of a placement holds expert {} of {}", slot, expert, num_experts));
    }
    if (expert >= 0) {
      places[static_cast<size_t>(expert)].push_back(slot);
    }
  }
  ExpertPlacement placement{
      .first_copy = {0}, .place_of_copy = {}, .num_ranks = num_ranks, .slots_per_rank = num_slots / num_ranks};
  for (const auto& of_expert : places) {
    if (of_expert.empty()) {
      throw ArgumentError(fmt::format("expert {} has no slot in a placement", placement.first_copy.size() - 1));
    }
    placement.place_of_copy.insert(placement.place_of_copy.end(), of_expert.begin(), of_expert.end());
    placement.first_copy.push_back(static_cast<int32_t>(placement.place_of_copy.size()));
  }
  return placement;
}

std::vector<int64_t> count_copies(
    const ExpertPlacement& placement, std::span<const int32_t> topk_ids, int k, int rank, int ranks_per_target) {
  const int slots_per_target = placement.slots_per_rank * ranks_per_target;
  std::vector<int64_t> counts(static_cast<size_t>(placement.num_ranks / ranks_per_target), 0);
  for (size_t first = 0; first < topk_ids.size(); first += static_cast<size_t>(k)) {
    const auto token = static_cast<int64_t>(first) / k;
    std::set<int32_t> targets;
    for (const int32_t expert : topk_ids.subspan(first, static_cast<size_t>(k))) {
      if (expert >= 0 && expert < placement.num_experts()) {
        targets.insert(placement.place(expert, token, rank) / slots_per_target);
      }
    }
    for (const int32_t target : targets) {
      ++counts[static_cast<size_t>(target)];
    }
  }
  return counts;
}

std::vector<int64_t> count_rows(const ExpertPlacement& placement, std::span<const int32_t> topk_ids, int k, int rank) {
  std::vector<int64_t> counts(static_cast<size_t>(placement.num_ranks), 0);
  for (size_t choice = 0; choice < topk_ids.size(); ++choice) {
    if (const int32_t expert = topk_ids[choice]; expert >= 0 && expert < placement.num_experts()) {
      const int32_t place = placement.place(expert, static_cast<int64_t>(choice) / k, rank);
      ++counts[static_cast<size_t>(place / placement.slots_per_rank)];
    }
  }
  return counts;
}

int64_t ExchangeSizes::bytes_per_copy() const {
  return is_fp8 ? hidden + (hidden + kScaleLen - 1) / kScaleLen * kScaleBytes : 2 * hidden;
}

int64_t ExchangeSizes::dispatch_bytes(int64_t num_copies) const {
  return num_copies * bytes_per_copy() + max_tokens * k * kIdBytes + kFlagBytes;
}

int64_t ExchangeSizes::combine_bytes(int64_t num_rows) const {
  return num_rows * (bytes_per_row() + kIdBytes) + kFlagBytes;
}

}  // namespace gpu
