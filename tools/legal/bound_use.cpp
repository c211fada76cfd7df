#include "tools/legal/bound_use.hpp"

#include <algorithm>
#include <cmath>

#include "golden/compare.hpp"
#include "reference/estimate_call.hpp"
#include "reference/weight_matrix.hpp"
#include "tools/cli.hpp"
#include "tools/legal/ops.hpp"
#include "tools/legal_runs.hpp"

namespace tools::legal {
namespace {

using model::OpKind;
using model::TensorView;
using reference::OpCall;

std::vector<model::Estimate> given(std::span<const TensorView> tensors) {
  std::vector<model::Estimate> estimates;
  for (const TensorView& tensor : tensors) {
    estimates.push_back(tensor.bytes.empty() ? model::Estimate{} : reference::given(tensor));
  }
  return estimates;
}

// Kinds whose bound is derived differently by form are told apart.
std::string form_of(const OpCall& call) {
  const std::string kind(model::op_kind_name(call.op.kind));
  const bool absorbed = call.op.kind == OpKind::kAttentionContext
                            ? call.inputs.size() == 1
                            : (call.op.kind == OpKind::kAttentionProbs || call.op.kind == OpKind::kAttentionLse) &&
                                  call.inputs.size() == 3;
  if (absorbed) {
    return kind + ", absorbed";
  }
  if (call.op.kind == OpKind::kLinear) {
    const bool fp8 = reference::WeightMatrix(call.weights, call.op.weights[0]).is_fp8();
    return kind + (fp8 ? ", FP8 blocks" : ", BF16");
  }
  if (call.op.kind == OpKind::kRouterScores) {
    return kind + (call.config().scoring_func == model::ScoringFunction::kSigmoid ? ", sigmoid" : ", softmax");
  }
  return kind;
}

void add(BoundUse& use, const model::Estimate& estimate, const TensorView& legal) {
  const auto values = model::to_double(legal);
  for (size_t i = 0; i < values.size(); ++i) {
    if (estimate.error[i] > 0) {
      ++use.num_elements;
      use.largest = std::max(use.largest, std::abs(values[i] - estimate.value[i]) / estimate.error[i]);
    } else {
      ++use.num_exact;
    }
  }
}

}  // namespace

std::map<std::string, BoundUse> bound_uses(Trials& trials, int64_t num_orders) {
  constexpr double kElements = 1e6;
  const double num_sigmas = golden::family_wise_sigmas(kElements);
  std::map<std::string, BoundUse> uses;
  uint64_t seed = 0;
  RecordJob job;
  job.run = [&](const OpCall& call) {
    auto right = reference::run_op(call);
    const bool is_choice = call.op.kind == OpKind::kRouterGroups || call.op.kind == OpKind::kRouterExperts;
    if (is_choice || right.size() == 0) {
      return right;
    }
    const auto estimate = reference::estimate_op({.rules = call.rules,
                                                  .workload = call.workload,
                                                  .weights = call.weights,
                                                  .op = call.op,
                                                  .inputs = given(call.inputs),
                                                  .expert_outputs = given(call.expert_outputs),
                                                  .num_sigmas = num_sigmas,
                                                  .num_threads = call.num_threads});
    BoundUse& use = uses[form_of(call)];
    for (int64_t i = 0; i < num_orders; ++i) {
      Order order(++seed, true);
      add(use, estimate, run_in_order(call, order).value_or(right));
    }
    return right;
  };
  for (const LegalPlace& place : legal_places()) {
    show_progress("bounds on " + place.fixture);
    (void)trials.record(place.fixture, place.cases, job);
  }
  return uses;
}

}  // namespace tools::legal
