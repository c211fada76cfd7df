#include "tools/op_pack/admissible.hpp"

#include <algorithm>
#include <functional>

#include "reference/bounds/routing.hpp"
#include "reference/numerics/round.hpp"

namespace tools::op_pack {
namespace {

// Ends of one token's selection keys, rounded as keys are stored.
struct KeyEnds {
  std::vector<double> low;
  std::vector<double> high;
};

KeyEnds key_ends(const reference::Rules& rules, const reference::TokenScores& token) {
  const auto format = rules.exact() ? model::DType::kF64 : model::DType::kF32;
  KeyEnds keys;
  for (size_t e = 0; e < token.value.size(); ++e) {
    const double bias = token.bias.empty() ? 0 : token.bias[e];
    keys.low.push_back(reference::round_to_format(format, token.value[e] - token.error[e] + bias));
    keys.high.push_back(reference::round_to_format(format, token.value[e] + token.error[e] + bias));
  }
  return keys;
}

// Calls visit with each set of `count` groups out of [next, num_groups) behind those already in `kept`.
void for_each_set(std::vector<int32_t>& kept,
                  int32_t next,
                  int64_t count,
                  int64_t num_groups,
                  const std::function<void(const std::vector<int32_t>&)>& visit) {
  if (static_cast<int64_t>(kept.size()) == count) {
    visit(kept);
    return;
  }
  for (int32_t group = next; group < num_groups; ++group) {
    kept.push_back(group);
    for_each_set(kept, group + 1, count, num_groups, visit);
    kept.pop_back();
  }
}

// With the kept groups given, k of their experts can be chosen without a clearly better one being left out. e can be among them if
// fewer than k others lie above its whole interval, and can be missing if k others reach up to its lower end.
void add_choices(
    const KeyEnds& keys, std::span<const size_t> members, int64_t k, std::span<uint8_t> may, std::span<uint8_t> must) {
  std::vector<uint8_t> required(may.size(), 0);
  for (const size_t e : members) {
    int64_t num_above = 0;
    int64_t num_reaching = 0;
    for (const size_t other : members) {
      num_above += other != e && keys.low[other] > keys.high[e] ? 1 : 0;
      num_reaching += other != e && keys.high[other] >= keys.low[e] ? 1 : 0;
    }
    may[e] = may[e] != 0 || num_above < k ? 1 : 0;
    required[e] = num_reaching < k ? 1 : 0;
  }
  std::transform(must.begin(), must.end(), required.begin(), must.begin(), [](uint8_t a, uint8_t b) { return a & b; });
}

}  // namespace

Masks admissible_sets(const model::ModelConfig& config,
                      const reference::Rules& rules,
                      const model::Estimate& scores,
                      std::span<const float> bias) {
  const auto num_experts = static_cast<size_t>(config.n_routed_experts);
  Masks masks{std::vector<uint8_t>(scores.value.size(), 0), std::vector<uint8_t>(scores.value.size(), 1)};
  for (size_t offset = 0; offset < scores.value.size(); offset += num_experts) {
    const reference::TokenScores token{.value = std::span(scores.value).subspan(offset, num_experts),
                                       .error = std::span(scores.error).subspan(offset, num_experts),
                                       .bias = bias};
    const KeyEnds keys = key_ends(rules, token);
    std::vector<int32_t> kept;
    for_each_set(kept, 0, config.topk_group, config.n_group, [&](const std::vector<int32_t>& groups) {
      if (config.n_group > 1 &&
          reference::judge_groups(config, rules, token, groups).verdict == reference::ChoiceVerdict::kWrong) {
        return;
      }
      std::vector<size_t> members;
      for (size_t e = 0; e < num_experts; ++e) {
        const auto group = static_cast<int32_t>(static_cast<int64_t>(e) / config.experts_per_group());
        if (std::find(groups.begin(), groups.end(), group) != groups.end()) {
          members.push_back(e);
        }
      }
      add_choices(keys,
                  members,
                  config.num_experts_per_tok,
                  std::span(masks.may).subspan(offset, num_experts),
                  std::span(masks.must).subspan(offset, num_experts));
    });
  }
  return masks;
}

}  // namespace tools::op_pack
