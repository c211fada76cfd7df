// Draws what a step's tokens choose: counts of each expert for the fast path, or every token's experts where they matter one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/counter_random.hpp"
#include "simulator/placement.hpp"
#include "simulator/routing.hpp"

namespace simulator {

// Copies of each expert among `num_tokens` tokens of `experts_per_token` different experts each. The counts add up to
// num_tokens * experts_per_token, none is above num_tokens. Multinomial: choices of one token are drawn as if independent, so an
// expert's variance is n p (1 - p/k) where distinct choices give n p (1 - p), p its chance to be among the k; few tokens (at most
// 32) are drawn one by one, without repetition.
std::vector<int64_t> sample_expert_counts(const std::vector<double>& popularity,
                                          int64_t num_tokens,
                                          int64_t experts_per_token,
                                          CounterRandom& random);

// One token through the router, exactly: an expert's score is w / (w + x), w its weight and x exponential noise, which is the sigmoid
// of log(w) plus Gumbel noise; choices follow score + bias (`bias` empty: none). A group's score is the sum of its two best; the best
// `kept_groups` groups stay; of their experts the best k are chosen. Without groups and bias this is drawing without repetition in
// proportion to the weights. In the order of descending score.
std::vector<int64_t> route_token(const Router& router,
                                 const std::vector<double>& weights,
                                 const std::vector<double>& bias,
                                 CounterRandom& random);

// Copies in each slot: those of an expert are shared evenly by its slots, the remainder from `first_copy` on. [num_slots]
std::vector<int64_t> slot_counts(const std::vector<int64_t>& expert_counts,
                                 const Placement& placement,
                                 int64_t first_copy);

}  // namespace simulator
