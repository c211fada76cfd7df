// RoPE: the rotated part of every query head, and the one rotated key all heads share.
#pragma once

#include "reference/op_call.hpp"

namespace reference {

// Source: V3 report eq. 4, 8; apply_rotary_emb in DeepSeek-V3.2-Exp inference/model.py. Interleaved pairs (2i, 2i + 1).
// Rounding: FP32 cos and sin (rope.hpp), each product and the sum in FP32, one rounding to BF16; kBf16Steps rounds all five.
// Order: out[2i] = x[2i] cos - x[2i+1] sin; out[2i+1] = x[2i] sin + x[2i+1] cos.
// inputs: q [tokens, heads * (nope + rope)]. Output [tokens, heads, rope] bf16 (exact: f64).
void rotate_query(const OpCall& call, model::TensorView& result);

// The same for the last rope columns of kv_a [tokens, kv_lora + rope]. Output [tokens, rope].
void rotate_key(const OpCall& call, model::TensorView& result);

// Position of a row: the token's own; an MTP layer of depth k works at position + 1 + k (a constant shift cancels in q.k).
int64_t rope_position(const model::ModelConfig& config, const model::Op& op, int64_t token_position);

}  // namespace reference
