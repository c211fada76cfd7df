// Chooses the next token from logits, in FP64, as model/sampling.hpp says.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/sampling.hpp"

namespace reference {

// The tokens before the one to choose: what the penalties look at.
struct TokensSoFar {
  std::span<const int32_t> prompt;
  std::span<const int32_t> generated;
};

// Logits [vocab] after the three penalties.
std::vector<double> penalised(const model::Sampling& sampling, TokensSoFar tokens, std::span<const double> logits);

// The probabilities [vocab] that remain after temperature, min-p, top-k and top-p, adding up to 1; tokens left out have 0.
// Temperature 0: 1 at the largest logit, the lower id winning a tie. `logits` are already penalised.
// Rounding: FP64, exp_f64; order of sums: ascending id, top-p descending probability and then ascending id.
std::vector<double> remaining_probabilities(const model::Sampling& sampling, std::span<const double> logits);

// Uniform in [0, 1), 53 bits.
double uniform(uint64_t seed, const model::DrawPlace& place);

// The token whose share of [0, 1), in ascending id, holds the draw. One draw serves any distribution, so a draft that is drawn with
// the draw of its position tends to be the token that the model itself draws there.
int32_t sample(const model::Sampling& sampling,
               TokensSoFar tokens,
               std::span<const double> logits,
               const model::DrawPlace& place);

// Id and natural logarithm of the probability of the `count` likeliest tokens, likeliest first, ties by ascending id, under the
// logits as they are: no penalty, no temperature.
std::vector<std::pair<int32_t, double>> top_logprobs(std::span<const double> logits, int64_t count);
// The same for one token.
double logprob(std::span<const double> logits, int32_t token);

}  // namespace reference
