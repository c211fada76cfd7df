#include "gpu/engine/kernel_of.hpp"

#include <algorithm>
#include <optional>

namespace gpu {
namespace {

using model::OpKind;

std::vector<model::Op> ops_of(const model::ModelConfig& config, model::AttentionForm form) {
  return model::op_list(
      config, {.sequences = {{0, 1}}, .attention_form = form, .num_mtp_layers = config.num_nextn_predict_layers});
}

// An op, or the part of a grouped one, by its id.
std::optional<model::Op> find_op(const std::vector<model::Op>& ops, const std::string& op_id) {
  for (const model::Op& op : ops) {
    for (int64_t part = 0; part < op.num_parts; ++part) {
      model::Op found = op.num_parts > 1 ? model::expert_part(op, part) : op;
      if (found.id == op_id) {
        return found;
      }
    }
  }
  return std::nullopt;
}

std::string kernel_of(const model::ModelConfig& config, bool expanded, const model::Op& op) {
  switch (op.kind) {
    case OpKind::kEmbed: return "embed";
    case OpKind::kRmsNorm: return op.id.ends_with(".kv_a_norm") ? "cache_latent" : "rms_norm";
    case OpKind::kResidualAdd:
    case OpKind::kLayerOutput: return "rms_norm";
    case OpKind::kLinear:
      return !config.quantization ? "bf16_linear" : (expanded || op.expert >= 0 ? "fp8_linear_sm90" : "fp8_linear");
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
}

}  // namespace

std::string kernel_of(const model::ModelConfig& config, model::AttentionForm form, const std::string& op_id) {
  const auto op = find_op(ops_of(config, form), op_id);
  return op ? kernel_of(config, form == model::AttentionForm::kExpanded, *op) : "";
}

std::vector<std::string> kernels_in_front_of(const model::ModelConfig& config,
                                             model::AttentionForm form,
                                             const std::string& op_id) {
  const auto ops = ops_of(config, form);
  const auto op = find_op(ops, op_id);
  std::vector<std::string> kernels;
  if (!op) {
    return kernels;
  }
  if (op->kind == OpKind::kLinear) {
    const auto input = find_op(ops, op->inputs.front());
    const OpKind kind = input ? input->kind : OpKind::kEmbed;
    if (kind == OpKind::kCacheLatent) {
      kernels.emplace_back("gather_latent");
    } else if (config.quantization && kind == OpKind::kRmsNorm) {
      kernels.emplace_back("rms_norm");
    } else if (config.quantization && kind == OpKind::kAttentionContext) {
      kernels.emplace_back("quantize_rows");
    } else if (config.quantization && kind == OpKind::kSwiglu) {
      kernels.emplace_back("swiglu");
    }
  }
  const bool gathers = op->expert >= 0 && std::ranges::any_of(op->inputs, [](const std::string& input) {
                         return input.ends_with(".topk_ids");
                       });
  if (gathers || op->kind == OpKind::kMoeOutput) {
    kernels.emplace_back("align");
    if (config.quantization) {
      kernels.emplace_back("pack_rows");
    }
  }
  return kernels;
}

}  // namespace gpu
