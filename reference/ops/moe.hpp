// SwiGLU, and the sums that join experts: routed experts by weight, then the shared one.
#pragma once

#include "reference/op_call.hpp"

namespace reference {

// silu(gate) * up. Source: V3 report 2.1; Expert.forward and MLP.forward in DeepSeek-V3.2-Exp inference/model.py.
// Rounding: rules.swiglu. Order: no sum. inputs: gate, up [rows, dim]. Output [rows, dim] bf16 (exact: f64).
void swiglu(const OpCall& call, model::TensorView& result);

// Weighted sum of the routed experts' outputs. Source: MoE.forward in DeepSeek-V3.2-Exp inference/model.py.
// Rounding: FP32 product, FP32 sum, kept FP32 or stored as BF16 by rules.combine; the BF16 forms round both at each step; rules.expert_ranks
// rounds the sum of each rank.
// Order: ascending expert id, whatever the order of topk_ids; kBf16BySlot follows topk_ids.
// inputs: topk_ids [tokens, k], topk_weights [tokens, k]; expert_outputs: rows of the tokens that chose the expert, ascending.
// Output [tokens, hidden] f32 or bf16 (exact: f64).
void combine(const OpCall& call, model::TensorView& result);

// routed + shared, one rounding to BF16. Source: the same. inputs: routed [tokens, hidden], shared if the model has one.
void moe_output(const OpCall& call, model::TensorView& result);

}  // namespace reference
