// The units in which the residual stream is held (Rules::stream): what makes room for it in FP16.
// Source of the idea: DeepseekV2DecoderLayer in vLLM's model_executor/models/deepseek_v2.py, which does it for float16 alone and leaves
// the norms' epsilon as it is. Here the stream is small from its first tensor on, so that no count of dense layers is special.
#pragma once

#include "model/config.hpp"
#include "model/op_list.hpp"
#include "reference/rules.hpp"

namespace reference {

// FP32(1 / routed_scaling_factor), or 1 where the stream is as the model has it.
float stream_unit(const Rules& rules, const model::ModelConfig& config);

// What a result is multiplied with, in FP32 before its rounding, because it becomes part of the stream: embeddings, o_proj, the
// output of a dense MLP and of the shared expert, eh_proj. 1 for every other op; routed experts get smaller by their weights.
float output_unit(const Rules& rules, const model::ModelConfig& config, const model::Op& op);

// What a norm adds to the mean square: of a stream in smaller units the square of the unit times as much.
double norm_eps(const Rules& rules, const model::ModelConfig& config, const model::Op& norm);

// The last factor of routing weights: routed_scaling_factor in the stream's units.
double routed_factor(const Rules& rules, const model::ModelConfig& config);

}  // namespace reference
