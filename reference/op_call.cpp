#include "reference/op_call.hpp"

#include "reference/ops/absorbed.hpp"
#include "reference/ops/attention.hpp"
#include "reference/ops/cache_latent.hpp"
#include "reference/ops/embed.hpp"
#include "reference/ops/head.hpp"
#include "reference/ops/linear.hpp"
#include "reference/ops/moe.hpp"
#include "reference/ops/residual.hpp"
#include "reference/ops/rms_norm.hpp"
#include "reference/ops/rotate.hpp"
#include "reference/ops/router.hpp"
#include "reference/values.hpp"

namespace reference {

std::vector<float> weight_vector(const OpCall& call) {
  if (call.op.weights.empty()) {
    return {};
  }
  return load<float>(call.vector != nullptr ? *call.vector : call.weights.weight(call.op.weights[0]));
}

model::TensorView run_op(const OpCall& call) {
  using model::OpKind;
  switch (call.op.kind) {
    case OpKind::kEmbed: return embed(call);
    case OpKind::kRmsNorm: return rms_norm(call);
    case OpKind::kLinear: return linear(call);
    case OpKind::kRotateQuery: return rotate_query(call);
    case OpKind::kRotateKey: return rotate_key(call);
    case OpKind::kCacheLatent: return cache_latent(call);
    case OpKind::kQueryLatent: return query_latent(call);
    case OpKind::kAttentionProbs: return attention_probs(call);
    case OpKind::kAttentionLse: return attention_lse(call);
    case OpKind::kOutputLatent: return output_latent(call);
    case OpKind::kAttentionContext: return attention_context(call);
    case OpKind::kResidualAdd: return residual_add(call);
    case OpKind::kRouterLogits: return router_logits(call);
    case OpKind::kRouterScores: return router_scores(call);
    case OpKind::kRouterGroups: return router_groups(call);
    case OpKind::kRouterExperts: return router_experts(call);
    case OpKind::kRouterWeights: return router_weights(call);
    case OpKind::kSwiglu: return swiglu(call);
    case OpKind::kCombine: return combine(call);
    case OpKind::kMoeOutput: return moe_output(call);
    case OpKind::kLayerOutput: return layer_output(call);
    case OpKind::kMtpConcat: return linear(call);
    case OpKind::kHead: return head(call);
  }
  model::throw_check_error(__FILE__, __LINE__, "unknown op kind");
}

}  // namespace reference
