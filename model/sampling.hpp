// How the next token is chosen: what a request asks for. A description only; the reference and a device each have their own sampler.
#pragma once

#include <cstdint>

namespace model {

// The order is that of vLLM's sampler: repetition penalty, frequency penalty, presence penalty; then, unless temperature is 0, which
// takes the largest logit: temperature, min-p, top-k, top-p, draw. Defaults leave the distribution as it is, but for the
// temperature, whose default is greedy.
struct Sampling {
  double temperature = 0;  // >= 0
  int64_t top_k = 0;       // keep the k largest logits, and those equal to the smallest of them; 0: all
  double top_p = 1;        // keep the smallest set, largest first, whose probability reaches p; (0, 1]
  double min_p = 0;        // keep what has at least min_p times the largest probability; [0, 1]
  double repetition_penalty =
      1;  // > 0: positive logits of tokens seen (prompt too) are divided by it, negative ones multiplied
  double presence_penalty = 0;   // subtracted from logits of tokens that were generated
  double frequency_penalty = 0;  // likewise, times how often
  uint64_t seed = 0;

  bool operator==(const Sampling&) const = default;
};

// The draw of Philox4x32-10 that decides a token: key = seed, counter = (position, draw, request). `position` is that of the drawn
// token in its sequence, so that a token does not depend on what else ran, nor on how many drafts were verified at once.
struct DrawPlace {
  int64_t request = 0;
  int64_t position = 0;
  uint32_t draw = 0;  // 0: the token itself
};

}  // namespace model
