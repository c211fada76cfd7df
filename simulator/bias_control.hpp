// What-if: the router's bias steered without an auxiliary loss, as in training (V3 report, section 2.1.2): after each step the bias of
// an overloaded expert goes down by gamma, that of an underloaded one up. How fast does that balance a load that has drifted?
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/routing.hpp"

namespace simulator {

struct BiasControl {
  double gamma = 0.001;
  int64_t num_steps = 200;
  int64_t tokens_per_step = 512;
};

struct BiasStep {
  int64_t step = 0;
  double expert_max_over_mean = 0;  // of this step's counts, sampling noise included
  double rank_max_over_mean = 0;    // experts in order on `num_ranks`
};

// Starts with all biases at 0 on experts of `popularity`. Each token is routed exactly.
std::vector<BiasStep> control_bias(const Router& router,
                                   const std::vector<double>& popularity,
                                   int64_t num_ranks,
                                   const BiasControl& control,
                                   uint64_t seed);

}  // namespace simulator
