// Logits: normed state times the head, and the router's logits, which follow the same rule with another rounding.
#pragma once

#include "reference/op_call.hpp"

namespace reference {

// Source: head in DeepSeek-V3.2-Exp inference/model.py (weights and input cast to FP32); V3 report 2.1.
// Rounding: FP32 sum; stored as FP32 or BF16 by rules.head. Order: dot_in_order.
// inputs: normed state [tokens, hidden]. Output [tokens, vocab] f32 or bf16 (exact: f64).
void head(const OpCall& call, model::TensorView& result);

// Source: Gate in DeepSeek-V3.2-Exp inference/model.py: linear(x.float(), weight.float()).
// Rounding: FP32 sum; stored as FP32 or BF16 by rules.router. Order: dot_in_order.
// inputs: ffn_norm [tokens, hidden]. Output [tokens, experts] f32 or bf16 (exact: f64).
void router_logits(const OpCall& call, model::TensorView& result);

// Whether such logits, stored as `result`, come from the tensor cores of the rules' recipe: FP32 ones do not.
bool on_tensor_cores(const Rules& rules, model::DType result);

}  // namespace reference
