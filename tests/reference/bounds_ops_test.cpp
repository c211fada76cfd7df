// The error bound of every op: a run of the reference lies inside, a truncated or shifted result does not.
#include <gtest/gtest.h>

#include <set>

#include "model/op_list.hpp"
#include "reference/estimate_call.hpp"
#include "reference/numerics/round.hpp"
#include "reference/variants.hpp"
#include "tests/reference/small_model.hpp"

namespace reference {
namespace {

using model::AttentionForm;
using model::OpKind;

model::Estimate estimate_of(const OpCall& call) {
  EstimateCall estimate{.rules = call.rules, .workload = call.workload, .weights = call.weights, .op = call.op};
  const auto given_or_none = [](const model::TensorView& tensor) {
    return tensor.bytes.empty() ? model::Estimate{} : given(tensor);
  };
  for (const auto& input : call.inputs) {
    estimate.inputs.push_back(given_or_none(input));
  }
  for (const auto& output : call.expert_outputs) {
    estimate.expert_outputs.push_back(given_or_none(output));
  }
  return estimate_op(estimate);
}

// Some number within the interval rounds to `stored`.
bool inside(const model::Estimate& estimate, size_t i, double stored) {
  return round_to_format(estimate.dtype, estimate.value[i] - estimate.error[i]) <= stored &&
         stored <= round_to_format(estimate.dtype, estimate.value[i] + estimate.error[i]);
}

bool has_estimate(OpKind kind) {
  return kind != OpKind::kRouterGroups && kind != OpKind::kRouterExperts;
}

// Runs two steps of the model; visit(call, estimate, result) sees every op that has an estimate.
template <typename Visit>
void for_each_op(const HandMadeWeights& weights, const Rules& rules, AttentionForm form, const Visit& visit) {
  const auto run = [&](const OpCall& call) {
    auto value = run_op(call);
    if (has_estimate(call.op.kind)) {
      visit(call, estimate_of(call), model::to_double(value), value.dtype);
    }
    return value;
  };
  LatentCache cache;
  BlindProbe probe;
  const Transformer transformer(weights, rules, 1, run);
  for (const StepInput& step : two_steps(form, weights.config().vocab_size)) {
    transformer.step(step, cache, probe);
  }
}

// The profile, every legal change of one of its rules, BF16 products, and exact mode.
std::vector<Variant> all_rules() {
  std::set<OpKind> kinds;
  for (int kind = 0; kind <= static_cast<int>(OpKind::kHead); ++kind) {
    kinds.insert(static_cast<OpKind>(kind));
  }
  const Rules v32 = v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32);
  std::vector<Variant> list{
      {"v32", v32}, {"gemm-bf16", v32_rules(Gemm::kBf16, model::ScaleFormat::kFp32)}, {"exact", exact_rules()}};
  for (const Variant& variant : rule_variants(v32, kinds)) {
    if (variant.name.find('+') == std::string::npos) {
      list.push_back(variant);
    }
  }
  return list;
}

TEST(OpBounds, EveryOpOfEveryRule_LiesInsideItsInterval) {
  auto config = small_config();
  for (const auto scoring : {model::ScoringFunction::kSigmoid, model::ScoringFunction::kSoftmax}) {
    config.scoring_func = scoring;
    const auto weights = random_weights(config, 1);
    std::set<OpKind> seen;
    for (const auto& [name, rules] : all_rules()) {
      for (const auto form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
        for_each_op(
            weights,
            rules,
            form,
            [&, &rule = name](
                const OpCall& call, const model::Estimate& estimate, const Numbers& result, model::DType dtype) {
              seen.insert(call.op.kind);
              ASSERT_EQ(estimate.dtype, dtype) << rule << " " << call.op.id;
              ASSERT_EQ(estimate.value.size(), result.size()) << rule << " " << call.op.id;
              for (size_t i = 0; i < result.size(); ++i) {
                ASSERT_TRUE(inside(estimate, i, result[i]))
                    << rule << " " << call.op.id << " [" << i << "]: " << result[i] << ", not in " << estimate.value[i]
                    << " +- " << estimate.error[i];
              }
            });
      }
    }
    EXPECT_EQ(seen.size(), 21u);  // all 23 kinds but the two choices of the router
  }
}

// How many stored BF16 results of one run a wrong rounding would push out of their intervals.
struct Caught {
  int64_t changed = 0;
  int64_t outside = 0;
  [[nodiscard]] double share() const { return static_cast<double>(outside) / static_cast<double>(changed); }
};

template <typename Fault>
std::map<OpKind, Caught> caught(const Fault& fault) {
  const auto weights = random_weights(small_config(), 2);
  std::map<OpKind, Caught> by_kind;
  for (const auto form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
    for_each_op(weights,
                v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32),
                form,
                [&](const OpCall& call, const model::Estimate& estimate, const Numbers& result, model::DType dtype) {
                  for (size_t i = 0; dtype == model::DType::kBF16 && i < result.size(); ++i) {
                    const double faulty = fault(estimate.value[i], result[i]);
                    by_kind[call.op.kind].changed += faulty != result[i];
                    by_kind[call.op.kind].outside += faulty != result[i] && !inside(estimate, i, faulty);
                  }
                });
  }
  return by_kind;
}

// Truncation changes about half of the elements; nearly every one of those is noticed. Sums of two BF16 numbers are
// often exact ties, which the bound of an addition lets go either way.
TEST(OpBounds, TruncatedBf16Results_LieOutside) {
  const auto truncated = [](double value, double rounded_value) {
    const double step = ulp_in_format(model::DType::kBF16, value);
    return std::abs(rounded_value) > std::abs(value) ? rounded_value - std::copysign(step, value) : rounded_value;
  };
  for (const auto& [kind, counts] : caught(truncated)) {
    if (counts.changed > 0) {
      EXPECT_GT(counts.share(), 0.95) << model::op_kind_name(kind) << " " << counts.changed;
    }
  }
}

TEST(OpBounds, ResultsOneBf16StepAway_LieOutside) {
  const auto shifted = [](double value, double rounded_value) {
    return rounded_value + std::copysign(2 * ulp_in_format(model::DType::kBF16, rounded_value), value - rounded_value);
  };
  for (const auto& [kind, counts] : caught(shifted)) {
    EXPECT_GT(counts.share(), 0.95) << model::op_kind_name(kind) << " " << counts.changed;
  }
}

}  // namespace
}  // namespace reference
