// The units in which the residual stream is held, and what they do to those who write and read it.
#pragma once

#include "model/config.hpp"

namespace gpu {

// Small units make room for the stream in FP16 (docs/decisions/0011).
struct StreamUnits {
  float factor = 1;  // of what becomes part of the stream: embeddings, o_proj, dense MLPs, the shared expert, eh_proj
  float norm_epsilon = 0;   // of the norms that read it
  float routed_factor = 1;  // of routing weights: routed experts add to the stream by these
};

// As the model has it, or scaled: divided by routed_scaling_factor.
inline StreamUnits stream_units(const model::ModelConfig& config, bool scaled) {
  const float factor = scaled ? static_cast<float>(1 / config.routed_scaling_factor) : 1;
  return {.factor = factor,
          .norm_epsilon = static_cast<float>(config.rms_norm_eps * (double{factor} * double{factor})),
          .routed_factor = scaled ? 1 : static_cast<float>(config.routed_scaling_factor)};
}

}  // namespace gpu
