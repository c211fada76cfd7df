#include "gpu/engine/shard.hpp"

#include "model/check.hpp"

namespace gpu {

Shard shard_of(const model::ParallelPlan& plan, int64_t rank) {
  const model::ParallelLayout& layout = plan.layout;
  const model::ModelConfig& config = plan.config;
  if (layout.expert_tp() > 1 && config.n_routed_experts > 0) {
    model::throw_input_error(
        "layout: ep {} with tp {} cuts experts, which the engine does not do: expected ep {} or more",
        layout.ep,
        layout.tp,
        layout.tp);
  }
  if (layout.sequence_parallel) {
    model::throw_input_error("layout: the engine does not run sequence-parallel norms");
  }
  if (layout.tp > 64) {
    model::throw_input_error("layout: tp {}: expected at most 64", layout.tp);
  }
  const model::RankPlace at = plan.place(rank);
  const int64_t vocab_len = config.vocab_size / layout.tp;
  return {.tp = layout.tp,
          .tp_rank = at.tp_rank,
          .ep = layout.ep,
          .ep_rank = at.ep_rank,
          .num_heads = config.num_attention_heads / layout.tp,
          .vocab = {at.tp_rank * vocab_len, (at.tp_rank + 1) * vocab_len},
          .dense_dim = config.intermediate_size / layout.tp,
          .shared_dim = config.shared_intermediate_size() / layout.tp,
          .experts = plan.experts(at.ep_rank),
          .layers = plan.stage_layers(at.stage),
          .is_first_stage = at.stage == 0,
          .is_last_stage = at.stage == layout.pp - 1};
}

}  // namespace gpu
