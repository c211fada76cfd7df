#include "simulator/expert_sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "model/check.hpp"

namespace simulator {
namespace {

constexpr int64_t kTokenByToken = 32;

// One token's experts without repetition, each next one in proportion to the popularity of those left.
void draw_token(const std::vector<double>& cumulative,
                int64_t experts_per_token,
                CounterRandom& random,
                std::vector<size_t>& chosen) {
  chosen.clear();
  while (static_cast<int64_t>(chosen.size()) < experts_per_token) {
    const double point = random.uniform() * cumulative.back();
    const auto found = std::ranges::upper_bound(cumulative, point);
    const auto expert = static_cast<size_t>(std::min(found - cumulative.begin(), std::ssize(cumulative) - 1));
    if (std::ranges::find(chosen, expert) == chosen.end()) {
      chosen.push_back(expert);
    }
  }
}

}  // namespace

std::vector<int64_t> sample_expert_counts(const std::vector<double>& popularity,
                                          int64_t num_tokens,
                                          int64_t experts_per_token,
                                          CounterRandom& random) {
  const auto num_positive = std::ranges::count_if(popularity, [](double share) { return share > 0; });
  CHECK(num_positive >= experts_per_token && num_tokens >= 0);
  std::vector<int64_t> counts(popularity.size(), 0);
  if (num_tokens <= kTokenByToken) {
    std::vector<double> cumulative(popularity.size());
    std::partial_sum(popularity.begin(), popularity.end(), cumulative.begin());
    std::vector<size_t> chosen;
    for (int64_t token = 0; token < num_tokens; ++token) {
      draw_token(cumulative, experts_per_token, random, chosen);
      for (const size_t expert : chosen) {
        ++counts[expert];
      }
    }
    return counts;
  }
  int64_t left = num_tokens * experts_per_token;
  double share_left = std::accumulate(popularity.begin(), popularity.end(), 0.0);
  for (size_t expert = 0; expert < popularity.size() && left > 0; ++expert) {
    const double chance = share_left > 0 ? std::clamp(popularity[expert] / share_left, 0.0, 1.0) : 1.0;
    counts[expert] = std::min(random.binomial(left, chance), num_tokens);
    left -= counts[expert];
    share_left -= popularity[expert];
  }
  // What did not fit under the limit of one copy a token goes to the experts that are left, most popular first.
  if (left > 0) {
    std::vector<size_t> order(popularity.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return popularity[a] > popularity[b]; });
    for (const size_t expert : order) {
      const int64_t added = popularity[expert] > 0 ? std::min(left, num_tokens - counts[expert]) : 0;
      counts[expert] += added;
      left -= added;
    }
  }
  CHECK_EQ(left, 0);
  return counts;
}

std::vector<int64_t> route_token(const Router& router,
                                 const std::vector<double>& weights,
                                 const std::vector<double>& bias,
                                 CounterRandom& random) {
  const auto num_experts = static_cast<size_t>(router.num_experts);
  CHECK_EQ(weights.size(), num_experts);
  CHECK(bias.empty() || bias.size() == num_experts);
  CHECK(router.num_groups > 0 && router.num_experts % router.num_groups == 0 && router.kept_groups > 0);
  std::vector<double> scores(num_experts);
  for (size_t expert = 0; expert < num_experts; ++expert) {
    scores[expert] = weights[expert] / (weights[expert] - std::log(random.uniform()));
    scores[expert] += bias.empty() ? 0 : bias[expert];
  }
  const size_t group_len = num_experts / static_cast<size_t>(router.num_groups);
  std::vector<std::pair<double, size_t>> groups;
  for (size_t group = 0; group < static_cast<size_t>(router.num_groups); ++group) {
    double best = std::numeric_limits<double>::lowest();
    double second = best;
    for (size_t i = group * group_len; i < (group + 1) * group_len; ++i) {
      if (scores[i] > best) {
        second = std::exchange(best, scores[i]);
      } else {
        second = std::max(second, scores[i]);
      }
    }
    groups.emplace_back(group_len > 1 ? best + second : best, group);
  }
  std::ranges::stable_sort(groups, std::greater<>(), &std::pair<double, size_t>::first);
  std::vector<std::pair<double, int64_t>> candidates;
  for (size_t i = 0; i < std::min(groups.size(), static_cast<size_t>(router.kept_groups)); ++i) {
    for (size_t expert = groups[i].second * group_len; expert < (groups[i].second + 1) * group_len; ++expert) {
      candidates.emplace_back(scores[expert], static_cast<int64_t>(expert));
    }
  }
  const auto k = static_cast<size_t>(router.experts_per_token);
  CHECK(candidates.size() >= k);
  std::ranges::partial_sort(candidates, candidates.begin() + static_cast<std::ptrdiff_t>(k), std::greater<>());
  std::vector<int64_t> chosen;
  for (size_t i = 0; i < k; ++i) {
    chosen.push_back(candidates[i].second);
  }
  return chosen;
}

std::vector<int64_t> slot_counts(const std::vector<int64_t>& expert_counts,
                                 const Placement& placement,
                                 int64_t first_copy) {
  CHECK_EQ(static_cast<int64_t>(expert_counts.size()), placement.num_experts);
  std::vector<int64_t> copies(expert_counts.size(), 0);
  for (const int64_t expert : placement.expert_of_slot) {
    if (expert != Placement::kEmptySlot) {
      ++copies[static_cast<size_t>(expert)];
    }
  }
  std::vector<int64_t> seen(expert_counts.size(), 0);
  std::vector<int64_t> counts;
  counts.reserve(placement.expert_of_slot.size());
  for (const int64_t id : placement.expert_of_slot) {
    if (id == Placement::kEmptySlot) {
      counts.push_back(0);
      continue;
    }
    const auto expert = static_cast<size_t>(id);
    const int64_t turn = (seen[expert]++ + first_copy) % copies[expert];
    counts.push_back(expert_counts[expert] / copies[expert] + (turn < expert_counts[expert] % copies[expert] ? 1 : 0));
  }
  return counts;
}

}  // namespace simulator
