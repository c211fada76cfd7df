#include "reference/bounds/routing.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <set>

#include "reference/numerics/round.hpp"
#include "reference/ops/router.hpp"

namespace reference {
namespace {

// A selection key with the ends of its interval; all three rounded as the rule stores keys.
struct Keys {
  std::vector<double> value;
  std::vector<double> low;
  std::vector<double> high;
};

double stored_key(const Rules& rules, double key) {
  return round_to_format(rules.exact() ? model::DType::kF64 : model::DType::kF32, key);
}

Keys biased_keys(const Rules& rules, const TokenScores& token) {
  Keys keys;
  for (size_t e = 0; e < token.value.size(); ++e) {
    const double b = token.bias.empty() ? 0 : token.bias[e];
    keys.value.push_back(stored_key(rules, token.value[e] + b));
    keys.low.push_back(stored_key(rules, token.value[e] - token.error[e] + b));
    keys.high.push_back(stored_key(rules, token.value[e] + token.error[e] + b));
  }
  return keys;
}

std::vector<int32_t> largest_keys(std::span<const double> keys, int64_t count) {
  const auto ids = largest<double>(keys, count);
  return {ids.begin(), ids.end()};
}

Keys group_keys(const model::ModelConfig& config, const Rules& rules, const Keys& experts) {
  const auto sums = [&](const std::vector<double>& biased) {
    std::vector<double> keys;
    std::ranges::transform(group_scores<double>(config, biased), std::back_inserter(keys), [&](double group) {
      return stored_key(rules, group);
    });
    return keys;
  };
  return {sums(experts.value), sums(experts.low), sums(experts.high)};
}

// Could a legal implementation keep exactly `chosen` out of `candidates`?
bool admissible(const Keys& keys, const std::set<int32_t>& candidates, const std::set<int32_t>& chosen) {
  double best_left_out = -std::numeric_limits<double>::infinity();
  for (const int32_t id : candidates) {
    if (!chosen.contains(id)) {
      best_left_out = std::max(best_left_out, keys.low[static_cast<size_t>(id)]);
    }
  }
  return std::all_of(chosen.begin(), chosen.end(), [&](int32_t id) {
    return candidates.contains(id) && keys.high[static_cast<size_t>(id)] >= best_left_out;
  });
}

std::set<int32_t> all_ids(size_t count) {
  std::set<int32_t> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.insert(static_cast<int32_t>(i));
  }
  return ids;
}

// Calls visit with every admissible set of kept groups until it returns true.
bool any_kept_set(const model::ModelConfig& config,
                  const Keys& groups,
                  const std::function<bool(const std::set<int32_t>&)>& visit) {
  const auto all = all_ids(groups.value.size());
  std::set<int32_t> kept;
  const std::function<bool(int32_t)> extend = [&](int32_t next) {
    if (static_cast<int64_t>(kept.size()) == config.topk_group) {
      return admissible(groups, all, kept) && visit(kept);
    }
    for (int32_t g = next; g < static_cast<int32_t>(groups.value.size()); ++g) {
      kept.insert(g);
      if (extend(g + 1)) {
        return true;
      }
      kept.erase(g);
    }
    return false;
  };
  return extend(0);
}

std::set<int32_t> members_of(const model::ModelConfig& config, const std::set<int32_t>& groups) {
  std::set<int32_t> experts;
  for (const int32_t group : groups) {
    for (int64_t i = 0; i < config.experts_per_group(); ++i) {
      experts.insert(static_cast<int32_t>(group * config.experts_per_group() + i));
    }
  }
  return experts;
}

// Fills in everything but the admissibility of a choice that differs.
ChoiceJudgement compare_choice(std::vector<int32_t> expected,
                               std::span<const int32_t> chosen,
                               const std::vector<int32_t>& ranking) {
  ChoiceJudgement judgement{.expected = std::move(expected)};
  const std::set<int32_t> ours(judgement.expected.begin(), judgement.expected.end());
  const std::set<int32_t> theirs(chosen.begin(), chosen.end());
  if (std::ranges::equal(judgement.expected, chosen)) {
    return judgement;
  }
  if (ours == theirs) {
    judgement.verdict = ChoiceVerdict::kReordered;
    return judgement;
  }
  judgement.verdict = ChoiceVerdict::kWrong;
  for (size_t rank = 0; rank < ranking.size(); ++rank) {
    if (theirs.contains(ranking[rank]) && !ours.contains(ranking[rank])) {
      judgement.outsider_rank = static_cast<int64_t>(rank);
      break;
    }
  }
  return judgement;
}

// Empty if the ids are a set of distinct numbers in [0, count).
std::string malformed(std::span<const int32_t> ids, size_t count) {
  std::set<int32_t> seen;
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= count) {
      return fmt::format("id {} is outside [0, {})", id, count);
    }
    if (!seen.insert(id).second) {
      return fmt::format("id {} is chosen twice", id);
    }
  }
  return "";
}

}  // namespace

ChoiceJudgement judge_groups(const model::ModelConfig& config,
                             const Rules& rules,
                             const TokenScores& token,
                             std::span<const int32_t> chosen) {
  const Keys groups = group_keys(config, rules, biased_keys(rules, token));
  auto judgement =
      compare_choice(largest_keys(groups.value, config.topk_group), chosen, largest_keys(groups.value, config.n_group));
  judgement.reason = malformed(chosen, groups.value.size());
  if (!judgement.reason.empty()) {
    judgement.verdict = ChoiceVerdict::kWrong;
  } else if (judgement.verdict == ChoiceVerdict::kWrong) {
    if (admissible(groups, all_ids(groups.value.size()), {chosen.begin(), chosen.end()})) {
      judgement.verdict = ChoiceVerdict::kFlip;
    } else {
      judgement.reason = "a group with a clearly larger score was dropped";
    }
  }
  return judgement;
}

ChoiceJudgement judge_experts(const model::ModelConfig& config,
                              const Rules& rules,
                              const TokenScores& token,
                              std::span<const int32_t> kept_groups,
                              std::span<const int32_t> chosen) {
  const Keys experts = biased_keys(rules, token);
  const std::set<int32_t> theirs(chosen.begin(), chosen.end());
  const bool grouped = config.n_group > 1;
  const Keys groups = grouped ? group_keys(config, rules, experts) : Keys{};

  std::vector<double> masked = experts.value;
  if (grouped) {
    std::vector<int32_t> kept(kept_groups.begin(), kept_groups.end());
    if (kept.empty()) {
      kept = largest_keys(groups.value, config.topk_group);
    }
    const auto members = members_of(config, {kept.begin(), kept.end()});
    for (size_t e = 0; e < masked.size(); ++e) {
      masked[e] = members.contains(static_cast<int32_t>(e)) ? masked[e] : -std::numeric_limits<double>::infinity();
    }
  }
  auto judgement = compare_choice(
      largest_keys(masked, config.num_experts_per_tok), chosen, largest_keys(masked, config.n_routed_experts));
  judgement.reason = malformed(chosen, masked.size());
  if (!judgement.reason.empty()) {
    judgement.verdict = ChoiceVerdict::kWrong;
    return judgement;
  }
  if (judgement.verdict != ChoiceVerdict::kWrong) {
    return judgement;
  }
  const auto explains = [&](const std::set<int32_t>& kept) {
    return admissible(experts, members_of(config, kept), theirs);
  };
  bool legal = false;
  if (!grouped) {
    legal = admissible(experts, all_ids(masked.size()), theirs);
  } else if (!kept_groups.empty()) {
    legal = explains({kept_groups.begin(), kept_groups.end()});
  } else {
    legal = any_kept_set(config, groups, explains);
  }
  if (legal) {
    judgement.verdict = ChoiceVerdict::kFlip;
  } else {
    judgement.reason =
        "an expert with a clearly larger biased score was left out, or its group should have been dropped";
  }
  return judgement;
}

}  // namespace reference
