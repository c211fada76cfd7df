// The products that the absorbed form of MLA adds: W_UK into the query, p into the latent, W_UV out of it.
#pragma once

#include "reference/op_call.hpp"

namespace reference {

// Common to the three. W_kvb [heads * (nope + v), kv_lora]: of each head the first nope rows are W_UK, the last v rows W_UV.
// Source: MLA.forward, decode branch, in DeepSeek-V3.2-Exp inference/model.py.
// Rounding: W_kvb dequantised to BF16 (never FP8 products, c is never quantised), FP32 sum, BF16 (exact: nothing).
// Order: dot_in_order over nope (q_latent), keys (o_latent), kv_lora (context).

// W_UK^T q_nope. inputs: q [tokens, heads * (nope + rope)]. Output [tokens, heads, kv_lora] bf16.
void query_latent(const OpCall& call, model::TensorView& result);

// sum over visible keys of p * c; p rounded by rules.probs. inputs: probs [tokens, heads, max keys], cache.
// Output [tokens, heads, kv_lora] bf16.
void output_latent(const OpCall& call, model::TensorView& result);

// W_UV o_latent. inputs: o_latent [tokens, heads, kv_lora]. Output [tokens, heads * v] bf16.
void context_from_latent(const OpCall& call, model::TensorView& result);

}  // namespace reference
