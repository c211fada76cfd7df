#include "reference/generate/sampler.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "model/check.hpp"
#include "model/philox.hpp"
#include "reference/numerics/functions.hpp"

namespace reference {
namespace {

// The lower id wins a tie.
int32_t largest(std::span<const double> values) {
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

double log_of_sum_of_exps(std::span<const double> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) {
    sum += exp_f64(logit - most);
  }
  return most + log_f64(sum);
}

// Ids that still have a probability, largest first, ties by ascending id.
std::vector<size_t> descending(std::span<const double> probs) {
  std::vector<size_t> ids;
  for (size_t id = 0; id < probs.size(); ++id) {
    if (probs[id] > 0) {
      ids.push_back(id);
    }
  }
  std::stable_sort(ids.begin(), ids.end(), [&](size_t a, size_t b) { return probs[a] > probs[b]; });
  return ids;
}

void normalise(std::vector<double>& probs) {
  double sum = 0;
  for (const double p : probs) {
    sum += p;
  }
  for (double& p : probs) {
    p /= sum;
  }
}

void keep_min_p(double min_p, std::vector<double>& probs) {
  const double least = min_p * *std::max_element(probs.begin(), probs.end());
  for (double& p : probs) {
    p = p < least ? 0 : p;
  }
}

// Equal logits have equal probabilities, so the ties of the k-th stay.
void keep_top_k(int64_t top_k, std::vector<double>& probs) {
  if (top_k >= static_cast<int64_t>(probs.size())) {
    return;
  }
  std::vector<double> sorted = probs;
  const auto kth = sorted.begin() + (top_k - 1);
  std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
  for (double& p : probs) {
    p = p < *kth ? 0 : p;
  }
}

// A token stays as long as those before it do not reach p.
void keep_top_p(double top_p, std::vector<double>& probs) {
  normalise(probs);
  double before = 0;
  for (const size_t id : descending(probs)) {
    const double p = probs[id];
    probs[id] = before < top_p ? p : 0;
    before += p;
  }
}

}  // namespace

std::vector<double> penalised(const model::Sampling& sampling, TokensSoFar tokens, std::span<const double> logits) {
  std::vector<double> result(logits.begin(), logits.end());
  if (sampling.repetition_penalty != 1) {
    std::set<int32_t> seen(tokens.prompt.begin(), tokens.prompt.end());
    seen.insert(tokens.generated.begin(), tokens.generated.end());
    for (const int32_t id : seen) {
      double& logit = result[static_cast<size_t>(id)];
      logit = logit > 0 ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
    }
  }
  if (sampling.frequency_penalty != 0 || sampling.presence_penalty != 0) {
    std::map<int32_t, int64_t> count_of;
    for (const int32_t id : tokens.generated) {
      ++count_of[id];
    }
    for (const auto& [id, count] : count_of) {
      double& logit = result[static_cast<size_t>(id)];
      logit -= sampling.frequency_penalty * static_cast<double>(count);
      logit -= sampling.presence_penalty;
    }
  }
  return result;
}

std::vector<double> remaining_probabilities(const model::Sampling& sampling, std::span<const double> logits) {
  std::vector<double> probs(logits.size());
  const int32_t best = largest(logits);
  if (sampling.temperature == 0) {
    probs[static_cast<size_t>(best)] = 1;
    return probs;
  }
  const double most = logits[static_cast<size_t>(best)];
  for (size_t id = 0; id < probs.size(); ++id) {
    probs[id] = exp_f64((logits[id] - most) / sampling.temperature);
  }
  if (sampling.min_p > 0) {
    keep_min_p(sampling.min_p, probs);
  }
  if (sampling.top_k > 0) {
    keep_top_k(sampling.top_k, probs);
  }
  if (sampling.top_p < 1) {
    keep_top_p(sampling.top_p, probs);
  }
  normalise(probs);
  return probs;
}

double uniform(uint64_t seed, const model::DrawPlace& place) {
  const auto request = static_cast<uint64_t>(place.request);
  const auto block = model::philox4x32({static_cast<uint32_t>(place.position),
                                        place.draw,
                                        static_cast<uint32_t>(request),
                                        static_cast<uint32_t>(request >> 32)},
                                       {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (static_cast<uint64_t>(block[1]) << 32 | block[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

int32_t sample(const model::Sampling& sampling,
               TokensSoFar tokens,
               std::span<const double> logits,
               const model::DrawPlace& place) {
  const auto final_logits = penalised(sampling, tokens, logits);
  if (sampling.temperature == 0) {
    return largest(final_logits);
  }
  const auto probs = remaining_probabilities(sampling, final_logits);
  const double draw = uniform(sampling.seed, place);
  double before = 0;
  size_t last = 0;
  for (size_t id = 0; id < probs.size(); ++id) {
    if (probs[id] > 0) {
      before += probs[id];
      last = id;
      if (draw < before) {
        break;
      }
    }
  }
  return static_cast<int32_t>(last);  // the last one also takes what rounding leaves of [0, 1)
}

std::vector<std::pair<int32_t, double>> top_logprobs(std::span<const double> logits, int64_t count) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto kept = std::min<int64_t>(count, static_cast<int64_t>(ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + kept, ids.end(), [&](int32_t a, int32_t b) {
    const double left = logits[static_cast<size_t>(a)];
    const double right = logits[static_cast<size_t>(b)];
    return left > right || (left == right && a < b);
  });
  const double total = log_of_sum_of_exps(logits);
  std::vector<std::pair<int32_t, double>> top;
  for (int64_t i = 0; i < kept; ++i) {
    const int32_t id = ids[static_cast<size_t>(i)];
    top.emplace_back(id, logits[static_cast<size_t>(id)] - total);
  }
  return top;
}

double logprob(std::span<const double> logits, int32_t token) {
  CHECK(token >= 0 && token < static_cast<int64_t>(logits.size()));
  return logits[static_cast<size_t>(token)] - log_of_sum_of_exps(logits);
}

}  // namespace reference
