// The router after its logits: scores, kept groups, chosen experts, weights.
#pragma once

#include <cstdint>
#include <span>

#include "reference/op_call.hpp"

namespace reference {

// Common to the four. Source: V3 report eq. 13-16 and 4.2; Gate in DeepSeek-V3.2-Exp inference/model.py.
// Ties: higher value first, then lower index (torch promises no order).

// sigmoid or softmax of the logits. Rounding: FP32, then rules.router. Order: softmax sum_in_order.
// inputs: router_logits [tokens, experts]. Output [tokens, experts].
void router_scores(const OpCall& call, model::TensorView& result);

// The topk_group groups with the largest score, descending: sum of the two largest biased scores of a group (noaux_tc), or its
// largest score. inputs: router_scores. Output [tokens, topk_group] i32.
void router_groups(const OpCall& call, model::TensorView& result);

// The experts with the largest biased score inside the kept groups, descending; all others count as -inf.
// inputs: router_scores, group_ids if the config has groups. Output [tokens, k] i32.
void router_experts(const OpCall& call, model::TensorView& result);

// Unbiased scores of the chosen experts, divided by (their sum + 1e-20) if norm_topk_prob, times routed_scaling_factor.
// Rounding: FP32 at every step, or BF16 by rules.router. Order: the sum runs in the order of topk_ids. inputs: router_scores, topk_ids.
// Output [tokens, k] f32, in the order of topk_ids.
void router_weights(const OpCall& call, model::TensorView& result);

// Score + bias of one token's experts; the selection key. Instantiated for float and double.
template <typename T>
Reused<T> biased_scores(std::span<const T> scores, std::span<const float> bias);
// Score of each group from biased scores. [n_group]
template <typename T>
Reused<T> group_scores(const model::ModelConfig& config, std::span<const T> biased);
// Indices of the `count` largest values, descending; ties: lower index first; NaN last.
template <typename T>
Reused<int32_t> largest(std::span<const T> values, int64_t count);

}  // namespace reference
