// The residual stream: the sum after attention, and the layer's output.
#pragma once

#include "reference/op_call.hpp"
#include "reference/reused.hpp"

namespace reference {

// Attention output + layer input.
// Source: V3 report 2.1 (pre-norm block); RMSNorm.forward(x, residual) in DeepSeek-V3.2-Exp inference/model.py.
// Rounding: the layer input to BF16 first (in the fused form it is an FP32 sum), FP32 addition, BF16(sum) is stored.
// Order: one addition. inputs: {o_proj, layer input} [tokens, hidden]. Output bf16 (exact: f64).
void residual_add(const OpCall& call, model::TensorView& result);

// The sum before it is stored: o_proj + BF16(layer input), FP32.
template <typename T>
Reused<T> residual_sum(const Rules& rules, const model::TensorView& o_proj, const model::TensorView& layer_input);

// Residual + FFN output.
// Source: the same; in DeepSeek-V3.2-Exp the pair (x, residual) travels on and is added by the next norm.
// Rounding: kFusedPair keeps the FP32 sum; kRounded stores BF16(sum). Order: one addition.
// inputs: {attn_residual, ffn} [tokens, hidden]. Output f32 or bf16 (exact: f64).
void layer_output(const OpCall& call, model::TensorView& result);

}  // namespace reference
