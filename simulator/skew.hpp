// How unequally experts are chosen: a family with one parameter, or measured loads. A popularity is the share of the token copies
// that each expert of a layer gets; the noise of drawing tokens comes on top (expert_sampler.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/counter_random.hpp"

namespace simulator {

enum class SkewFamily { kBalanced, kLogNormal, kPowerLaw, kGini, kLoads };

// "balanced", "lognormal:1.05", "powerlaw:1.01", "gini:0.4", "file:loads.csv", "trace:routing.csv".
struct Skew {
  SkewFamily family = SkewFamily::kLogNormal;
  // Matches rank and expert moments of DeepSeek-R1 that TensorRT-LLM published (docs/skew.md).
  double parameter = 1.05;
  std::vector<std::vector<double>> loads = {};  // kLoads: [layers][num_experts], copies
};

// Throws InputError that lists the forms.
Skew parse_skew(const std::string& text);
std::string skew_text(const Skew& skew);

// A layer's popularity, [num_experts], sums to 1. Layers differ, their experts' order is random, unless loads are given: those are
// taken layer by layer, again from the first when there are fewer. The power law is aiconfigurator's: weights between 1 and
// 0.8 * num_tokens with density x^-parameter, so it grows with num_tokens (global tokens of a step). Gini: the log-normal whose Gini
// coefficient that is. Throws InputError where loads have another number of experts.
std::vector<double> layer_popularity(const Skew& skew,
                                     int64_t num_experts,
                                     int64_t experts_per_token,
                                     int64_t num_tokens,
                                     int64_t layer_idx,
                                     uint64_t seed);

// Popularity of several layers. `layer_correlation` in [0, 1]: how much of the log weight a layer shares with the one before it
// (log-normal families only; ignored for the others).
std::vector<std::vector<double>> model_popularity(const Skew& skew,
                                                  int64_t num_experts,
                                                  int64_t experts_per_token,
                                                  int64_t num_tokens,
                                                  int64_t num_layers,
                                                  double layer_correlation,
                                                  uint64_t seed);

// The same layer later: log weights keep `correlation` of what they were, the rest is new. 1: nothing changed.
std::vector<double> drifted(const std::vector<double>& popularity, double correlation, CounterRandom& random);

// What a balancer saw of the popularity that comes in layer `layer_idx`: itself at correlation 1.
std::vector<double> seen_popularity(const std::vector<double>& coming,
                                    double correlation,
                                    int64_t layer_idx,
                                    uint64_t seed);

}  // namespace simulator
