#include "simulator/bias_control.hpp"

#include "model/check.hpp"
#include "simulator/eplb.hpp"
#include "simulator/expert_sampler.hpp"

namespace simulator {

std::vector<BiasStep> control_bias(const Router& router,
                                   const std::vector<double>& popularity,
                                   int64_t num_ranks,
                                   const BiasControl& control,
                                   uint64_t seed) {
  constexpr int64_t kStream = 4;
  // An average expert's weight: its score is then about 0.1 and that of a chosen one about 0.8.
  constexpr double kMeanWeight = 0.1;
  if (!(control.gamma >= 0) || control.gamma > 1 || control.num_steps < 1 || control.tokens_per_step < 1) {
    model::throw_input_error(
        "bias control with gamma {}, {} steps of {} tokens: expected gamma in [0, 1] and counts above 0",
        control.gamma,
        control.num_steps,
        control.tokens_per_step);
  }
  const auto num_experts = static_cast<double>(popularity.size());
  std::vector<double> weights;
  for (const double share : popularity) {
    weights.push_back(share * num_experts * kMeanWeight);
  }
  const Placement placement = contiguous_placement(
      router.num_experts, num_ranks, (router.num_experts + num_ranks - 1) / num_ranks * num_ranks, false);
  std::vector<double> bias(popularity.size(), 0.0);
  std::vector<BiasStep> steps;
  for (int64_t step = 0; step < control.num_steps; ++step) {
    CounterRandom random(seed, kStream, step);
    std::vector<double> counts(popularity.size(), 0.0);
    for (int64_t token = 0; token < control.tokens_per_step; ++token) {
      for (const int64_t expert : route_token(router, weights, bias, random)) {
        counts[static_cast<size_t>(expert)] += 1;
      }
    }
    steps.push_back({.step = step,
                     .expert_max_over_mean = max_over_mean(counts),
                     .rank_max_over_mean = max_over_mean(rank_loads(counts, placement))});
    const double mean = static_cast<double>(control.tokens_per_step * router.experts_per_token) / num_experts;
    for (size_t expert = 0; expert < counts.size(); ++expert) {
      bias[expert] += counts[expert] > mean ? -control.gamma : counts[expert] < mean ? control.gamma : 0;
    }
  }
  return steps;
}

}  // namespace simulator
