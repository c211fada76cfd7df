// Which kernel of the engine computes an op.
#pragma once

#include <string>

#include "model/config.hpp"

namespace gpu {

// "fp8_linear" for "layer.3.attn.q_a"; empty for an id that the engine does not compute.
std::string kernel_of(const model::ModelConfig& config, const std::string& op_id);

}  // namespace gpu
