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

// One token's experts. scores: estimate of the unbiased scores [num experts]; bias empty or [num experts].
// A choice is legal if some admissible set of kept groups explains it: each kept group's score is not below a dropped one's, and
// each chosen expert's biased score not below that of any candidate left out, all within the errors (ties may go either way).
ChoiceJudgement judge_experts(const model::ModelConfig& config,
                              const Rules& rules,
                              std::span<const double> scores,
                              std::span<const double> score_errors,
                              std::span<const float> bias,
                              std::span<const int32_t> chosen);

// The same for the kept groups alone.
ChoiceJudgement judge_groups(const model::ModelConfig& config,
                             const Rules& rules,
                             std::span<const double> scores,
                             std::span<const double> score_errors,
                             std::span<const float> bias,
                             std::span<const int32_t> chosen);

}  // namespace reference
