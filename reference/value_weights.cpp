#include "reference/value_weights.hpp"

#include <algorithm>

#include "reference/half.hpp"

namespace reference {

std::vector<double> value_factors(ProbsRule rule, std::span<const double> probs) {
  size_t block_len = probs.size();
  switch (rule) {
    case ProbsRule::kBf16BeforeValue:
    case ProbsRule::kBf16Stored:
    case ProbsRule::kFp32: return std::vector<double>(probs.size(), 1.0);
    case ProbsRule::kUnnormalised: break;
    case ProbsRule::kOnline64: block_len = 64; break;
    case ProbsRule::kOnline128: block_len = 128; break;
  }
  std::vector<double> factors;
  double largest = 0;
  for (size_t begin = 0; begin < probs.size(); begin += block_len) {
    const auto block = probs.subspan(begin, std::min(block_len, probs.size() - begin));
    largest = std::max(largest, *std::ranges::max_element(block));
    factors.insert(factors.end(), block.size(), largest > 0 ? largest : 1.0);
  }
  return factors;
}

bool rounds_weights(ProbsRule rule) {
  return rule != ProbsRule::kFp32;
}

void round_weights(const Rules& rules, std::span<float> weights) {
  const ProbsRule rule = rules.probs;
  if (!rounds_weights(rule)) {
    return;
  }
  if (rule == ProbsRule::kBf16BeforeValue || rule == ProbsRule::kBf16Stored) {  // every factor is 1
    round_all_to_half(rules.half, weights);
    return;
  }
  const auto factors = value_factors(rule, std::vector<double>(weights.begin(), weights.end()));
  for (size_t key = 0; key < weights.size(); ++key) {
    const auto factor = static_cast<float>(factors[key]);
    weights[key] = round_to_half(rules.half, weights[key] / factor) * factor;
  }
}

void round_weights(const Rules& rules,
                   std::span<const TokenPlace> places,
                   int64_t num_heads,
                   int64_t max_keys,
                   std::span<float> probs) {
  for (size_t row = 0; row < places.size() * static_cast<size_t>(num_heads); ++row) {
    const auto visible = static_cast<size_t>(places[row / static_cast<size_t>(num_heads)].num_visible());
    round_weights(rules, probs.subspan(row * static_cast<size_t>(max_keys), visible));
  }
}

}  // namespace reference
