// What multiplies the values in the attention core: the probabilities after the roundings of ProbsRule.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/rules.hpp"
#include "reference/tokens.hpp"

namespace reference {

// For each key the factor by which its probability is divided before it is rounded, and multiplied again afterwards: 1 for the
// normalised rules; unnormalised, the largest p of all keys; online in blocks, the largest p of the key's block and of all blocks
// before it, as a kernel that walks the keys has seen them. No division is left, since probabilities add up to 1.
// probs: [visible keys].
std::vector<double> value_factors(ProbsRule rule, std::span<const double> probs);

// True if the weight p / factor is rounded to 16 bits before it multiplies the value.
bool rounds_weights(ProbsRule rule);

// The weights of one token and head, FP32: [visible keys].
void round_weights(const Rules& rules, std::span<float> weights);

// The weights of a whole step, FP32: [tokens, heads, max keys] as probs is, unseen keys untouched.
void round_weights(const Rules& rules,
                   std::span<const TokenPlace> places,
                   int64_t num_heads,
                   int64_t max_keys,
                   std::span<float> probs);

}  // namespace reference
