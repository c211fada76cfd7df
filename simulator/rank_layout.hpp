// How one pool of GPUs is laid out and run: degrees, experts' placement, cache type, engine switches.
#pragma once

#include <cstdint>
#include <optional>

#include "model/config.hpp"
#include "model/parallel_plan.hpp"
#include "simulator/all_to_all.hpp"

namespace simulator {

enum class KvDtype { kBf16, kFp8 };

// Where the shared expert's weights are.
enum class SharedExpertPlace {
  kDefault,     // replicated where experts are spread over DP ranks, else sharded
  kReplicated,  // whole on every rank, which takes its part of the TP group's tokens
  kSharded,     // cut over tp
  kRouted,      // one more routed expert, which every token chooses: a copy more to send, slots of its own
};

struct RankLayout {
  model::ParallelLayout layout;
  int64_t redundant_experts = 0;
  bool eplb = false;
  SharedExpertPlace shared_expert = SharedExpertPlace::kDefault;
  std::optional<int64_t> dense_tp = {};         // ranks that share a dense layer's FFN; absent: tp
  std::optional<AllToAllBackend> backend = {};  // of decode; absent: what the engine uses on this hardware
  bool two_batch_overlap = false;
  bool cuda_graph = true;
  bool early_engine = false;  // a release of 2025
  KvDtype kv_dtype = KvDtype::kBf16;
  int64_t mtp_depth = 0;

  // Experts over more ranks than one TP group.
  [[nodiscard]] bool is_spread() const { return layout.ep > layout.tp; }
  [[nodiscard]] int64_t dense_ranks() const { return dense_tp.value_or(layout.tp); }
  [[nodiscard]] SharedExpertPlace shared_place() const {
    const auto usual = is_spread() ? SharedExpertPlace::kReplicated : SharedExpertPlace::kSharded;
    return shared_expert == SharedExpertPlace::kDefault ? usual : shared_expert;
  }
  // Experts of a layer that are placed as routed ones.
  [[nodiscard]] int64_t num_placed_experts(const model::ModelConfig& config) const {
    return config.n_routed_experts + (shared_place() == SharedExpertPlace::kRouted ? config.n_shared_experts : 0);
  }
};

// Throws InputError for degrees and places that cannot be, saying what would work.
void check_rank(const model::ModelConfig& config, const RankLayout& rank);

}  // namespace simulator
