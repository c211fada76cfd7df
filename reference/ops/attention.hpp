// The attention core: scores, softmax, and the weighted sum of values, in both forms.
#pragma once

#include "reference/op_call.hpp"

namespace reference {

// softmax over the visible keys (causal: keys 0..position) of scale * (q . k).
// Source: V3 report eq. 9-10; MLA.forward in DeepSeek-V3.2-Exp inference/model.py.
// Rounding: dot, times FP32(scale), in FP32 or BF16 steps by rules.scores; softmax FP32: exp(s - max), sum, one division. Stored
// FP32, or BF16 by rules.probs.
// Order, expanded: one dot over [nope | rope]. Absorbed: dot over the latent plus dot over rope. Sum of exps: sum_in_order.
// inputs expanded: q [tokens, heads * (nope + rope)], q_rope, kv_b [keys, heads * (nope + v)], cache [keys, kv_lora + rope];
// absorbed: q_latent [tokens, heads, kv_lora], q_rope, cache. Output [tokens, heads, max keys] f32, unseen keys 0 (exact: f64).
model::TensorView attention_probs(const OpCall& call);

// Natural log of the softmax denominator, scale included: max + log(sum). Inputs as above. Output [tokens, heads] f32.
model::TensorView attention_lse(const OpCall& call);

// sum over keys of p * v; absorbed: W_UV of o_latent.
// Rounding, expanded: p rounded by rules.probs, FP32 sum, BF16. Absorbed: W_UV in BF16, FP32 sum, BF16.
// Order: dot_in_order over keys (expanded) or over the latent (absorbed).
// inputs expanded: probs, kv_b; absorbed: o_latent [tokens, heads, kv_lora]. Output [tokens, heads * v] bf16 (exact: f64).
model::TensorView attention_context(const OpCall& call);

}  // namespace reference
