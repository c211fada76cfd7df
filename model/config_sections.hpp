// The parts of a config.json, each read from its JSON fields into a ModelConfig. config.cpp calls them in this order: a later
// part may need what an earlier one read.
#pragma once

#include "model/config.hpp"
#include "model/json_fields.hpp"

namespace model {

// All throw InputError.
void read_model_type(JsonFields& fields, ModelConfig& config);
void read_shape(JsonFields& fields, ModelConfig& config);
void read_experts(JsonFields& fields, ModelConfig& config);
void read_rope(JsonFields& fields, ModelConfig& config);
void read_quantization(JsonFields& fields, ModelConfig& config);
void read_tokens(JsonFields& fields, ModelConfig& config);
// What the model cannot do otherwise, and the keys that nobody asked for.
void read_rest(JsonFields& fields, ModelConfig& config);

}  // namespace model
