#include "reference/estimate_call.hpp"

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/builder.hpp"

namespace reference {

model::Estimate estimate_op(const EstimateCall& call) {
  using model::OpKind;
  switch (call.op.kind) {
    case OpKind::kEmbed: return estimate_embed(call);
    case OpKind::kRmsNorm: return estimate_rms_norm(call);
    case OpKind::kLinear:
    case OpKind::kMtpConcat: return estimate_linear(call);
    case OpKind::kRotateQuery:
    case OpKind::kRotateKey: return estimate_rotate(call);
    case OpKind::kCacheLatent: return estimate_cache_latent(call);
    case OpKind::kQueryLatent: return estimate_query_latent(call);
    case OpKind::kAttentionProbs:
    case OpKind::kAttentionLse: return estimate_softmax(call);
    case OpKind::kOutputLatent: return estimate_output_latent(call);
    case OpKind::kAttentionContext: return estimate_context(call);
    case OpKind::kResidualAdd: return estimate_residual_add(call);
    case OpKind::kRouterLogits:
      return estimate_unquantised_linear(call,
                                         call.rules.router == RouterRule::kFp32 ? model::DType::kF32 : call.rules.half);
    case OpKind::kRouterScores: return estimate_router_scores(call);
    case OpKind::kRouterWeights: return estimate_router_weights(call);
    case OpKind::kSwiglu: return estimate_swiglu(call);
    case OpKind::kCombine: return estimate_combine(call);
    case OpKind::kMoeOutput: return estimate_moe_output(call);
    case OpKind::kLayerOutput: return estimate_layer_output(call);
    case OpKind::kHead:
      return estimate_unquantised_linear(call,
                                         call.rules.head == HeadRule::kFp32 ? model::DType::kF32 : call.rules.half);
    case OpKind::kRouterGroups:
    case OpKind::kRouterExperts: break;
  }
  model::throw_check_error(__FILE__, __LINE__, "choices of the router have no estimate: " + call.op.id);
}

model::Estimate rounded(const model::Estimate& estimate) {
  if (estimate.dtype == model::DType::kF64) {
    return estimate;
  }
  model::Estimate stored = estimate;
  for (size_t i = 0; i < estimate.value.size(); ++i) {
    set(stored, static_cast<int64_t>(i), rounded_value(estimate.dtype, {estimate.value[i], estimate.error[i]}));
  }
  return stored;
}

model::Estimate given(const model::TensorView& tensor) {
  auto values = model::to_double(tensor);
  std::vector<double> errors(values.size(), 0.0);
  return {tensor.shape, std::move(values), std::move(errors), tensor.dtype};
}

}  // namespace reference
