#include "tools/device/row_owners.hpp"

#include <algorithm>
#include <string>

#include "gpu/engine/ranks.hpp"
#include "gpu/engine/shard.hpp"

namespace tools {
namespace {

constexpr const char* kExpert = ".moe.expert.";

class RowOwnersOf {
 public:
  RowOwnersOf(const model::ParallelPlan& plan, const std::vector<golden::Dump>& ranks)
      : plan_(plan), ranks_(ranks), shard_(gpu::shard_of(plan, 0)), placements_(gpu::placements_of(plan)) {}

  std::vector<int64_t> operator()(const std::string& name, const model::Op& op) const {
    const bool is_expert = op.num_parts > 1;
    if (shard_.has_share_of(op)) {
      return in_rank_order(name);
    }
    if (is_expert && plan_.layout.expert_tp() > 1 && !model::is_cut_over_tensor_ranks(op)) {
      return in_rank_order(name);
    }
    return is_expert && !plan_.expert_of_slot.empty() ? by_copy(name, op.layer) : std::vector<int64_t>();
  }

 private:
  [[nodiscard]] const model::TensorView* find(size_t rank, const std::string& name) const {
    const auto found = ranks_[rank].tensors.find(name);
    return found == ranks_[rank].tensors.end() ? nullptr : &found->second;
  }

  [[nodiscard]] std::vector<int64_t> in_rank_order(const std::string& name) const {
    std::vector<int64_t> owners;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (const auto* tensor = find(rank, name)) {
        owners.insert(
            owners.end(), static_cast<size_t>(tensor->shape[0]), static_cast<int64_t>(rank) % plan_.layout.stage_len());
      }
    }
    return owners;
  }

  // The tokens that chose the expert, in the order of their ranks, and the copy that each goes to.
  [[nodiscard]] std::vector<int64_t> by_copy(const std::string& name, int64_t layer) const {
    const size_t part = name.find(kExpert);
    const auto expert = static_cast<int32_t>(std::stol(name.substr(part + std::string(kExpert).size())));
    const std::string ids_name = name.substr(0, part) + ".moe.topk_ids";
    const gpu::ExpertPlacement& placement = placements_[static_cast<size_t>(layer)];
    const auto& layout = plan_.layout;
    std::vector<int64_t> owners;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto* ids = find(rank, ids_name);
      if (ids == nullptr) {
        continue;
      }
      const int64_t in_stage = static_cast<int64_t>(rank) % layout.stage_len();
      const int64_t source = in_stage % layout.ep;
      const int64_t num_rows = ids->shape[0];
      const int64_t share_len = layout.sequence_parallel ? num_rows : (num_rows + layout.tp - 1) / layout.tp;
      const int64_t first = layout.sequence_parallel ? 0 : std::min(num_rows, in_stage % layout.tp * share_len);
      const int64_t end = std::min(num_rows, first + share_len);
      for (int64_t row = first; row < end; ++row) {
        const auto chosen = ids->codes<int32_t>().subspan(static_cast<size_t>(row * ids->row_len()),
                                                          static_cast<size_t>(ids->row_len()));
        if (std::ranges::find(chosen, expert) != chosen.end()) {
          const int32_t place = placement.place(expert, row - first, static_cast<int>(source));
          owners.push_back(in_stage - source + place / placement.slots_per_rank);
        }
      }
    }
    return owners;
  }

  const model::ParallelPlan& plan_;
  const std::vector<golden::Dump>& ranks_;
  gpu::Shard shard_;  // of any rank: how a layout cuts ops
  std::vector<gpu::ExpertPlacement> placements_;
};

}  // namespace

golden::RowOwners row_owners_of(const model::ParallelPlan& plan, const std::vector<golden::Dump>& ranks) {
  return RowOwnersOf(plan, ranks);
}

}  // namespace tools
