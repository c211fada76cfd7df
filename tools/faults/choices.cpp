// Faults in the router's choices: groups and experts.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/numerics/bf16.hpp"
#include "tools/faults/change.hpp"

namespace tools::faults {
namespace {

Values bias_of(const OpCall& call) {
  if (call.op.weights.empty()) {
    return Values(static_cast<size_t>(call.config().n_routed_experts));
  }
  return model::to_double(call.weights.weight(call.op.weights[0]));
}

// Ids of the `count` largest, lower id first among equals.
std::vector<int32_t> best(const Values& scores, int64_t count) {
  std::vector<int32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  ids.resize(static_cast<size_t>(count));
  return ids;
}

// Scores of one token without bias, kept groups of that token (empty for a choice of groups) -> ids.
using Choose = std::function<std::vector<int32_t>(const OpCall&, const Values& scores, std::span<const int32_t> kept)>;

FaultyOp choosing(Choose choose) {
  return [choose = std::move(choose)](const OpCall& call) {
    std::vector<int32_t> ids;
    int64_t width = 0;
    for (int64_t t = 0; t < call.inputs[0].num_rows(); ++t) {
      const auto scores = model::to_double(model::slice_rows(call.inputs[0], t, t + 1));
      const auto kept = call.inputs.size() == 2 ? model::slice_rows(call.inputs[1], t, t + 1) : TensorView{};
      const auto row = choose(call, scores, kept.bytes.empty() ? std::span<const int32_t>() : kept.codes<int32_t>());
      width = static_cast<int64_t>(row.size());
      ids.insert(ids.end(), row.begin(), row.end());
    }
    return model::make_tensor(model::DType::kI32, {call.inputs[0].num_rows(), width}, std::move(ids));
  };
}

// Groups by the sum of score_of(expert) over all their experts.
FaultyOp groups_by_sum(std::function<double(double score, double bias)> score_of) {
  return choosing([score_of = std::move(score_of)](const OpCall& call, const Values& scores, std::span<const int32_t>) {
    const auto bias = bias_of(call);
    const auto group_len = static_cast<size_t>(call.config().experts_per_group());
    Values sums(scores.size() / group_len);
    for (size_t e = 0; e < scores.size(); ++e) {
      sums[e / group_len] += score_of(scores[e], bias[e]);
    }
    return best(sums, call.config().topk_group);
  });
}

double logit(double score) {
  return std::log(score / (1 - score));
}

// Biased scores, those outside the kept groups set to `masked`.
Values masked_scores(const OpCall& call, Values scores, std::span<const int32_t> kept, double masked) {
  const auto bias = bias_of(call);
  for (size_t e = 0; e < scores.size(); ++e) {
    const auto group = static_cast<int32_t>(static_cast<int64_t>(e) / call.config().experts_per_group());
    scores[e] = std::find(kept.begin(), kept.end(), group) == kept.end() ? masked : scores[e] + bias[e];
  }
  return scores;
}

TensorView rounded_to_bf16(const TensorView& bias) {
  return edited(bias, [](Values& values) {
    for (double& value : values) {
      value = reference::round_to_bf16(static_cast<float>(value));
    }
  });
}

}  // namespace

std::vector<Fault> choice_faults() {
  constexpr double kLowest = -1e30;
  std::vector<Fault> faults;
  faults.push_back(make_fault("bb-01",
                              "experts of dropped groups get score 0 instead of minus infinity",
                              "layer.*.moe.topk_ids",
                              on_edge(),
                              choosing([](const OpCall& call, const Values& scores, std::span<const int32_t> kept) {
                                return best(masked_scores(call, scores, kept, 0.0), call.config().num_experts_per_tok);
                              })));
  faults.push_back(make_fault(
      "bb-03",
      "a group's score is its largest biased score instead of the sum of the two largest",
      "layer.*.moe.group_ids",
      on_nano(),
      with_config([](model::ModelConfig& config) { config.topk_method = model::TopkMethod::kGroupLimitedGreedy; })));
  faults.push_back(make_fault("bb-08",
                              "the router's bias is rounded to BF16",
                              "layer.*.moe.topk_ids",
                              {"synthetic:nano?seed=58", prompt(5)},
                              with_weight(rounded_to_bf16)));
  faults.push_back(make_fault("h-01",
                              "a group's score is the sum of all its logits",
                              "layer.*.moe.group_ids",
                              on_nano(),
                              groups_by_sum([](double score, double) { return logit(score); })));
  faults.push_back(make_fault("h-03",
                              "experts are chosen by their logits, without the bias",
                              "layer.*.moe.topk_ids",
                              on_nano(),
                              with_weight([](const TensorView& bias) { return scaled(bias, 0); })));
  faults.push_back(make_fault(
      "h-42", "experts are chosen before groups are", "layer.*.moe.topk_ids", on_nano(), [](const OpCall& call) {
        OpCall changed = call;
        changed.inputs.resize(1);
        return reference::run_op(changed);
      }));
  faults.push_back(make_fault("h-43",
                              "a group's score is the sum of all its biased scores",
                              "layer.*.moe.group_ids",
                              on_nano(),
                              groups_by_sum([](double score, double bias) { return score + bias; })));
  faults.push_back(make_fault("k-30",
                              "a token uses the kept groups of the token before",
                              "layer.*.moe.topk_ids",
                              on_nano(),
                              with_input(1, [](const TensorView& kept, const OpCall&) {
                                return rows_from(kept, [](int64_t t) { return std::max<int64_t>(t - 1, 0); });
                              })));
  faults.push_back(make_fault("k-31",
                              "the last choice goes to the next best expert",
                              "layer.*.moe.topk_ids",
                              on_nano(),
                              choosing([](const OpCall& call, const Values& scores, std::span<const int32_t> kept) {
                                auto ids = best(masked_scores(call, scores, kept, kLowest),
                                                call.config().num_experts_per_tok + 1);
                                ids.erase(ids.end() - 2);
                                return ids;
                              })));
  faults.push_back(make_fault("k-32",
                              "the bias of the expert before is added",
                              "layer.*.moe.group_ids",
                              on_nano(),
                              with_weight([](const TensorView& bias) {
                                return rows_from(bias, [](int64_t e) { return std::max<int64_t>(e - 1, 0); });
                              })));
  return faults;
}

}  // namespace tools::faults
