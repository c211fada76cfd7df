// Which kernel of the engine computes an op.
#pragma once

#include <string>

#include "model/config.hpp"
#include "model/op_list.hpp"

namespace gpu {

// "fp8_linear" for "layer.3.attn.q_a" in a step of this form; empty for an id that the engine does not compute in it.
std::string kernel_of(const model::ModelConfig& config, model::AttentionForm form, const std::string& op_id);

}  // namespace gpu
