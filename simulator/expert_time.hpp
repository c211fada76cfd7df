// Time of one rank's routed experts (gate, up, activation, down), from fits to published tables of fused MoE kernels.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "simulator/hardware.hpp"
#include "simulator/layer_traffic.hpp"
#include "simulator/moe_layer.hpp"

namespace simulator {

// t = max(floor, fixed + ((us_per_expert A)^p + (us_per_row P)^p)^(1/p) + us_per_token T): A active experts, P padded rows, T tokens of
// all ranks (prefill kernels touch a buffer of that size). For experts of 3 matrices of 7168 x 2048.
struct ExpertTimeFit {
  std::string_view hardware;  // stem of the hardware file
  std::string_view kernel;    // "sglang-decode", "sglang-prefill", "trtllm-fp8", "trtllm-nvfp4"
  double fixed_us;
  double us_per_expert;
  double us_per_row;
  double exponent;
  double us_per_token = 0;
  double floor_us = 0;
};

std::span<const ExpertTimeFit> expert_time_fits();

double expert_time_us(const ExpertTimeFit& fit, const RankLoad& load, double num_tokens);

// What the experts of the model at hand are, against those of the tables.
struct ExpertShape {
  double weights = 3.0 * 7168 * 2048;  // numbers in one expert
};

struct ExpertTimeModel {
  ExpertTime time;
  std::string source;
  bool is_measured = false;  // fitted on this GPU
};

// The fit of this GPU and kernel; without one, that of the GPU with the closest memory rate, weights scaled by memory rate and rows by
// FP8 (or BF16) peak. Throws InputError for a kernel that nobody measured.
ExpertTimeModel expert_time_model(const Hardware& hardware,
                                  std::string_view kernel,
                                  const ExpertShape& shape,
                                  double num_tokens);

}  // namespace simulator
