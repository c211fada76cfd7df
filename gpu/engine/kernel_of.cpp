#include "gpu/engine/kernel_of.hpp"

namespace gpu {

std::string kernel_of(const model::ModelConfig& config, model::AttentionForm form, const std::string& op_id) {
  using model::OpKind;
  model::Workload workload{.sequences = {{0, 1}}, .num_mtp_layers = config.num_nextn_predict_layers};
  workload.attention_form = form;
  const bool expanded = form == model::AttentionForm::kExpanded;
  const auto kernel = [&](const model::Op& op) -> std::string {
    switch (op.kind) {
      case OpKind::kEmbed: return "embed";
      case OpKind::kRmsNorm: return op.id.ends_with(".kv_a_norm") ? "cache_latent" : "rms_norm";
      case OpKind::kResidualAdd:
      case OpKind::kLayerOutput: return "rms_norm";
      case OpKind::kLinear: return config.quantization ? "fp8_linear" : "bf16_linear";
      case OpKind::kRotateQuery: return "rotate_query";
      case OpKind::kRotateKey:
      case OpKind::kCacheLatent: return "cache_latent";
      case OpKind::kAttentionProbs:
      case OpKind::kAttentionLse:
      case OpKind::kOutputLatent: return expanded ? "expanded_attention" : "latent_attention";
      case OpKind::kAttentionContext: return expanded ? "expanded_attention" : "bf16_linear";
      case OpKind::kQueryLatent:
      case OpKind::kRouterLogits:
      case OpKind::kMtpConcat:
      case OpKind::kHead: return "bf16_linear";
      case OpKind::kRouterScores:
      case OpKind::kRouterGroups:
      case OpKind::kRouterExperts:
      case OpKind::kRouterWeights: return "router";
      case OpKind::kSwiglu: return "swiglu";
      case OpKind::kCombine:
      case OpKind::kMoeOutput: return "combine";
    }
    return "";
  };
  for (const model::Op& op : model::op_list(config, workload)) {
    for (int64_t part = 0; part < op.num_parts; ++part) {
      if ((op.num_parts > 1 ? model::expert_part(op, part).id : op.id) == op_id) {
        return kernel(op);
      }
    }
  }
  return "";
}

}  // namespace gpu
