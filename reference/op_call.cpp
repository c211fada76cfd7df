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

Reused<float> weight_vector(const OpCall& call) {
  if (call.op.weights.empty()) {
    return {};
  }
  if (call.vector != nullptr) {
    return load<float>(*call.vector);
  }
  return load<float>(call.weights.weight(call.op.weights[0]));
}

void run_op_into(model::TensorView& result, const OpCall& call) {
  using model::OpKind;
  switch (call.op.kind) {
    case OpKind::kEmbed: return embed(call, result);
    case OpKind::kRmsNorm: return rms_norm(call, result);
    case OpKind::kLinear: return linear(call, result);
    case OpKind::kRotateQuery: return rotate_query(call, result);
    case OpKind::kRotateKey: return rotate_key(call, result);
    case OpKind::kCacheLatent: return cache_latent(call, result);
    case OpKind::kQueryLatent: return query_latent(call, result);
    case OpKind::kAttentionProbs: return attention_probs(call, result);
    case OpKind::kAttentionLse: return attention_lse(call, result);
    case OpKind::kOutputLatent: return output_latent(call, result);
    case OpKind::kAttentionContext: return attention_context(call, result);
    case OpKind::kResidualAdd: return residual_add(call, result);
    case OpKind::kRouterLogits: return router_logits(call, result);
    case OpKind::kRouterScores: return router_scores(call, result);
    case OpKind::kRouterGroups: return router_groups(call, result);
    case OpKind::kRouterExperts: return router_experts(call, result);
    case OpKind::kRouterWeights: return router_weights(call, result);
    case OpKind::kSwiglu: return swiglu(call, result);
    case OpKind::kCombine: return combine(call, result);
    case OpKind::kMoeOutput: return moe_output(call, result);
    case OpKind::kLayerOutput: return layer_output(call, result);
    case OpKind::kMtpConcat: return linear(call, result);
    case OpKind::kHead: return head(call, result);
  }
  model::throw_check_error(__FILE__, __LINE__, "unknown op kind");
}

model::TensorView run_op(const OpCall& call) {
  model::TensorView result;
  run_op_into(result, call);
  return result;
}

}  // namespace reference
