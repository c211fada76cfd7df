#include "tools/recompute.hpp"

#include "reference/bounds/routing.hpp"
#include "reference/estimate_call.hpp"
#include "reference/numerics/round.hpp"
#include "reference/op_call.hpp"
#include "reference/values.hpp"
#include "reference/variants.hpp"

namespace tools {
namespace {

golden::ChoiceResult to_golden(reference::ChoiceJudgement judgement) {
  using Kind = golden::ChoiceResult::Kind;
  golden::ChoiceResult result{.kind = Kind::kSame,
                              .expected = std::move(judgement.expected),
                              .outsider_rank = judgement.outsider_rank,
                              .reason = std::move(judgement.reason)};
  switch (judgement.verdict) {
    case reference::ChoiceVerdict::kSame: result.kind = Kind::kSame; break;
    case reference::ChoiceVerdict::kReordered: result.kind = Kind::kReordered; break;
    case reference::ChoiceVerdict::kFlip: result.kind = Kind::kFlip; break;
    case reference::ChoiceVerdict::kWrong: result.kind = Kind::kWrong; break;
  }
  return result;
}

}  // namespace

ReferenceRecompute::ReferenceRecompute(const model::WeightSource& weights,
                                       reference::Rules rules,
                                       const model::Workload& workload,
                                       double num_sigmas,
                                       int num_threads)
    : weights_(weights), rules_(rules), workload_(workload), num_sigmas_(num_sigmas), num_threads_(num_threads) {
  variants_[""] = rules;
}

std::vector<std::string> ReferenceRecompute::variants(const std::set<model::OpKind>& kinds) const {
  std::vector<std::string> names;
  for (const auto& variant : reference::rule_variants(rules_, kinds)) {
    variants_[variant.name] = variant.rules;
    names.push_back(variant.name);
  }
  return names;
}

model::Estimate ReferenceRecompute::estimate(const model::Op& op,
                                             const golden::OpInputs<model::Estimate>& inputs,
                                             const std::string& variant) const {
  return reference::estimate_op({.rules = variants_.at(variant),
                                 .workload = workload_,
                                 .weights = weights_,
                                 .op = op,
                                 .inputs = inputs.inputs,
                                 .expert_outputs = inputs.expert_outputs,
                                 .num_sigmas = num_sigmas_,
                                 .num_threads = num_threads_});
}

model::Estimate ReferenceRecompute::stored(const model::Estimate& estimate) const {
  return reference::rounded(estimate);
}

model::TensorView ReferenceRecompute::run(const model::Op& op,
                                          const golden::OpInputs<model::TensorView>& inputs,
                                          const reference::Rules& rules) const {
  return reference::run_op({.rules = rules,
                            .workload = workload_,
                            .weights = weights_,
                            .op = op,
                            .inputs = inputs.inputs,
                            .expert_outputs = inputs.expert_outputs,
                            .num_threads = num_threads_});
}

model::TensorView ReferenceRecompute::bits(const model::Op& op,
                                           const golden::OpInputs<model::TensorView>& inputs) const {
  return run(op, inputs, rules_);
}

model::TensorView ReferenceRecompute::exact(const model::Op& op,
                                            const golden::OpInputs<model::TensorView>& inputs) const {
  return run(op, inputs, reference::exact_rules());
}

std::vector<golden::ChoiceResult> ReferenceRecompute::judge_choice(const model::Op& op,
                                                                   const model::Estimate& scores,
                                                                   const model::TensorView* kept_groups,
                                                                   const model::TensorView& chosen) const {
  const auto bias =
      op.weights.empty() ? reference::Reused<float>() : reference::load<float>(weights_.weight(op.weights[0]));
  const auto& config = weights_.config();
  const auto num_experts = static_cast<size_t>(config.n_routed_experts);
  const auto row_of = [](const model::TensorView& ids, int64_t token) {
    return model::slice_rows(ids, token, token + 1).codes<int32_t>();
  };
  std::vector<golden::ChoiceResult> results;
  for (int64_t t = 0; t < chosen.num_rows(); ++t) {
    const auto offset = static_cast<size_t>(t) * num_experts;
    const reference::TokenScores token{.value = std::span(scores.value).subspan(offset, num_experts),
                                       .error = std::span(scores.error).subspan(offset, num_experts),
                                       .bias = bias};
    if (op.kind == model::OpKind::kRouterGroups) {
      results.push_back(to_golden(reference::judge_groups(config, rules_, token, row_of(chosen, t))));
    } else {
      const auto kept = kept_groups == nullptr ? std::span<const int32_t>() : row_of(*kept_groups, t);
      results.push_back(to_golden(reference::judge_experts(config, rules_, token, kept, row_of(chosen, t))));
    }
  }
  return results;
}

double ReferenceRecompute::round_to(model::DType format, double value) const {
  return reference::round_to_format(format, value);
}

double ReferenceRecompute::ulp(model::DType format, double value) const {
  return reference::ulp_in_format(format, value);
}

}  // namespace tools
