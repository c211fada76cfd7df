// One short name for what a model is, whether its description came with a checkpoint or is built in: op records are joined by it.
#pragma once

#include <string>

#include "model/config.hpp"

namespace model {

// 16 hex digits over every field that changes an op, its shape, its numbers or its bytes; token ids and unknown keys are left out.
std::string config_hash(const ModelConfig& config);

}  // namespace model
