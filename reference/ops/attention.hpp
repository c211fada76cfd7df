// The attention core: scores, softmax, and the weighted sum of values, in both forms.
#pragma once

#include "reference/op_call.hpp"

namespace reference {

// The linear that expands keys and values of every cached position.
bool is_kv_b(const model::Op& op);
// Whether the expanded form can do without the result of kv_b: its input may then be an empty view, with call.cache and kv_b's weight as
// call.matrix in its place, and keys and values are expanded one head at a time, with the same bits.
bool expands_by_head(const Rules& rules, const model::ModelConfig& config);

// softmax over the visible keys (causal: keys 0..position) of scale * (q . k).
// Source: V3 report eq. 9-10; MLA.forward in DeepSeek-V3.2-Exp inference/model.py.
// Rounding: dot, times FP32(scale), in FP32 or BF16 steps by rules.scores; softmax FP32: exp(s - max), sum, one division. Stored
// FP32, or BF16 by rules.probs.
// Order, expanded: one dot over [nope | rope]. Absorbed: dot over the latent plus dot over rope. Sum of exps: sum_in_order.
// inputs expanded: q [tokens, heads * (nope + rope)], q_rope, kv_b [keys, heads * (nope + v)], cache [keys, kv_lora + rope];
// absorbed: q_latent [tokens, heads, kv_lora], q_rope, cache. Output [tokens, heads, max keys] f32, unseen keys 0 (exact: f64).
void attention_probs(const OpCall& call, model::TensorView& result);

// Natural log of the softmax denominator, scale included: max + log(sum). Inputs as above. Output [tokens, heads] f32.
void attention_lse(const OpCall& call, model::TensorView& result);

// sum over keys of p * v; absorbed: W_UV of o_latent.
// Rounding, expanded: p rounded by rules.probs, FP32 sum, BF16. Absorbed: W_UV in BF16, FP32 sum, BF16.
// Order: dot_in_order over keys (expanded) or over the latent (absorbed).
// inputs expanded: probs, kv_b; absorbed: o_latent [tokens, heads, kv_lora]. Output [tokens, heads * v] bf16 (exact: f64).
void attention_context(const OpCall& call, model::TensorView& result);

}  // namespace reference
