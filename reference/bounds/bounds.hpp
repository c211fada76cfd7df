// One bound for each op kind. Each function mirrors the op of the same name in reference/ops/, reads the same inputs, computes in
// double, applies the roundings that the rule puts inside the op, and leaves the last one to the caller.
// What is common: u = 2^-24 (2^-53 in exact mode), order_error for sums, kFunctionUnits * u for an elementary function.
#pragma once

#include "reference/estimate_call.hpp"

namespace reference {

model::Estimate estimate_embed(const EstimateCall& call);
model::Estimate estimate_cache_latent(const EstimateCall& call);
model::Estimate estimate_rms_norm(const EstimateCall& call);
model::Estimate estimate_linear(const EstimateCall& call);
// Logits and router logits.
model::Estimate estimate_unquantised_linear(const EstimateCall& call, model::DType dtype);
// rotate_query and rotate_key.
model::Estimate estimate_rotate(const EstimateCall& call);
// probs, or lse.
model::Estimate estimate_softmax(const EstimateCall& call);
model::Estimate estimate_context(const EstimateCall& call);
model::Estimate estimate_query_latent(const EstimateCall& call);
model::Estimate estimate_output_latent(const EstimateCall& call);
model::Estimate estimate_residual_add(const EstimateCall& call);
model::Estimate estimate_layer_output(const EstimateCall& call);
model::Estimate estimate_router_scores(const EstimateCall& call);
model::Estimate estimate_router_weights(const EstimateCall& call);
model::Estimate estimate_swiglu(const EstimateCall& call);
model::Estimate estimate_combine(const EstimateCall& call);
// inputs: routed, shared; or, where the combine before it is part of the call, topk_ids, topk_weights, experts, shared.
model::Estimate estimate_moe_output(const EstimateCall& call);

}  // namespace reference
