#include "gpu/engine/shard.hpp"

#include "model/check.hpp"

namespace gpu {

Shard shard_of(const model::ParallelPlan& plan, int64_t rank) {
  const model::ParallelLayout& layout = plan.layout;
  const model::ModelConfig& config = plan.config;
  if (!plan.expert_of_slot.empty() && (layout.ep == 1 || layout.expert_tp() > 1)) {
    model::throw_input_error(
        "placement: ep {} with tp {}: expected ep above 1, and not below tp", layout.ep, layout.tp);
  }
  if (layout.tp > kMaxTensorRanks) {
    model::throw_input_error("layout: tp {}: expected at most {}", layout.tp, kMaxTensorRanks);
  }
  const model::RankPlace at = plan.place(rank);
  const int64_t vocab_len = config.vocab_size / layout.tp;
  Shard shard{.tp = layout.tp,
              .tp_rank = at.tp_rank,
              .ep = layout.ep,
              .ep_rank = at.ep_rank,
              .expert_tp = layout.expert_tp(),
              .sequence_parallel = layout.sequence_parallel,
              .num_heads = config.num_attention_heads / layout.tp,
              .vocab = {at.tp_rank * vocab_len, (at.tp_rank + 1) * vocab_len},
              .dense_dim = config.intermediate_size / layout.tp,
              .shared_dim = config.shared_intermediate_size() / layout.tp,
              .expert_dim = config.moe_intermediate_size / layout.expert_tp(),
              .experts = {},
              .layers = plan.stage_layers(at.stage),
              .is_first_stage = at.stage == 0,
              .is_last_stage = at.stage == layout.pp - 1};
  shard.experts.resize(static_cast<size_t>(config.num_hidden_layers + config.num_nextn_predict_layers));
  for (int64_t layer = shard.layers.begin; layer < shard.layers.end; ++layer) {
    if (config.is_moe_layer(layer)) {
      auto& experts = shard.experts[static_cast<size_t>(layer)];
      experts = plan.hosted_experts(layer, at.ep_rank);
      shard.num_experts = static_cast<int64_t>(experts.size());
    }
  }
  return shard;
}

}  // namespace gpu
