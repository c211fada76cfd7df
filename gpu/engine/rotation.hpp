// Cosines and sines of RoPE with YaRN, and the softmax scale, as the kernels read them. Written here a second time on purpose: device
// and reference share no arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.hpp"

namespace gpu {

// [num_positions, rope / 2, 2]: cos, sin. Source: precompute_freqs_cis of DeepSeek-V3.2-Exp inference/model.py; YaRN, when the config
// has it, is on for every position. Rounding: powers, frequencies and angles in FP32 as there; cos and sin in FP64, FP32 once.
std::vector<float> rotation_table(const model::ModelConfig& config, int64_t num_positions);

// (nope + rope)^-0.5 * m^2, m = 0.1 mscale_all_dim ln(factor) + 1 with YaRN.
float softmax_scale(const model::ModelConfig& config);

}  // namespace gpu
