// Is a choice of experts one that a legal implementation could have made from these scores?
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/estimate.hpp"
#include "reference/rules.hpp"

namespace reference {

enum class ChoiceVerdict {
  kSame,       // the reference's own choice, in its order
  kReordered,  // the same experts, listed in another order
  kFlip,       // other experts, but every exchanged pair lies within the error of the scores
  kWrong,      // an expert was chosen although a clearly better one was there
};

struct ChoiceJudgement {
  ChoiceVerdict verdict = ChoiceVerdict::kSame;
  std::vector<int32_t> expected = {};  // the reference's choice, in its order
  // For flips and wrong choices: the rank (0-based) that the reference gives to the best-ranked expert that it did not choose
  // itself but the other side did. One above the last chosen rank is a near miss.
  int64_t outsider_rank = -1;
  std::string reason = {};  // for kWrong, in words
};

// What one token's choice is made from.
struct TokenScores {
  std::span<const double> value;  // [num experts] unbiased scores
  std::span<const double> error;  // [num experts]
  std::span<const float> bias;    // [num experts], or empty
};

// One token's experts. kept_groups: the groups that were kept, or empty if they are not known.
// A choice is legal if each chosen expert's biased score is not below that of any candidate left out, within the errors (ties may
// go either way), inside the kept groups; if those are not known, inside some set of groups that the scores admit.
ChoiceJudgement judge_experts(const model::ModelConfig& config,
                              const Rules& rules,
                              const TokenScores& token,
                              std::span<const int32_t> kept_groups,
                              std::span<const int32_t> chosen);

// The kept groups: each one's score is not below a dropped one's, within the errors.
ChoiceJudgement judge_groups(const model::ModelConfig& config,
                             const Rules& rules,
                             const TokenScores& token,
                             std::span<const int32_t> chosen);

}  // namespace reference
