#include "golden/runs.hpp"

#include <algorithm>

namespace golden {
namespace {

// "layer.3.moe.expert.7.gate" -> "layer.3.moe.expert.7"; the down projection of an expert or MLP names the block itself.
std::string without_last_part(const std::string& id) {
  return id.substr(0, id.rfind('.'));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// "layer.3" or "mtp.0.layer" of an op inside a layer.
std::string layer_prefix(const std::string& id) {
  const size_t start = id.starts_with("mtp.") ? id.find("layer") + 5 : id.find('.', id.find('.') + 1);
  return id.substr(0, start);
}

std::vector<std::string> mlp_blocks(const model::Op& op) {
  const std::string layer = layer_prefix(op.id);
  if (contains(op.id, ".mlp.") || (op.id.ends_with(".ffn") && op.kind == model::OpKind::kLinear)) {
    return {"mlp:" + layer};
  }
  const bool is_down = op.id.ends_with(".shared") || op.inputs.front().ends_with(".act");
  return {"mlp:" + (is_down ? op.id : without_last_part(op.id)), "routed:" + layer};
}

}  // namespace

std::vector<std::string> blocks_of(const model::Op& op) {
  using model::OpKind;
  switch (op.kind) {
    case OpKind::kRmsNorm: {
      std::vector<std::string> blocks{"norm:" + op.id};
      if (op.inputs.size() == 3) {
        blocks.push_back("residual:" + layer_prefix(op.id));
      }
      return blocks;
    }
    case OpKind::kLinear: {
      std::vector<std::string> blocks{"norm:" + op.inputs.front()};
      if (contains(op.id, ".attn.")) {
        return blocks;
      }
      const auto mlp = mlp_blocks(op);
      blocks.insert(blocks.end(), mlp.begin(), mlp.end());
      return blocks;
    }
    case OpKind::kSwiglu: return mlp_blocks(op);
    case OpKind::kRouterLogits: return {"router:" + layer_prefix(op.id), "norm:" + op.inputs.front()};
    case OpKind::kRouterScores:
    case OpKind::kRouterGroups:
    case OpKind::kRouterExperts:
    case OpKind::kRouterWeights: return {"router:" + layer_prefix(op.id)};
    case OpKind::kHead:
    case OpKind::kMtpConcat: return {"norm:" + op.inputs.front()};
    case OpKind::kRotateQuery:
    case OpKind::kRotateKey:
    case OpKind::kCacheLatent:
    case OpKind::kQueryLatent:
    case OpKind::kAttentionProbs:
    case OpKind::kAttentionLse:
    case OpKind::kOutputLatent:
    case OpKind::kAttentionContext: return {"attention:" + std::to_string(op.layer)};
    case OpKind::kCombine:
    case OpKind::kMoeOutput: return {"routed:" + layer_prefix(op.id)};
    case OpKind::kResidualAdd:
    case OpKind::kLayerOutput: return {"residual:" + layer_prefix(op.id)};
    case OpKind::kEmbed: return {"norm:" + op.id};
  }
  return {};
}

bool may_be_absent(const model::Op& op) {
  return op.optional || (op.kind == model::OpKind::kEmbed && op.layer >= 0);
}

}  // namespace golden
