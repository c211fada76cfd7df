// Faults in the router's scores and in the weights of the chosen experts.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/faults/change.hpp"

namespace tools::faults {
namespace {

// Scores of the chosen experts of one token, their ids -> weights.
using Weigh = std::function<Values(const OpCall&, const Values& chosen, std::span<const int32_t> ids)>;

FaultyOp weighing(Weigh weigh) {
  return [weigh = std::move(weigh)](const OpCall& call) {
    const auto right = reference::run_op(call);
    Values weights;
    for (int64_t t = 0; t < right.num_rows(); ++t) {
      const auto ids = model::slice_rows(call.inputs[1], t, t + 1);
      const auto scores = model::to_double(model::slice_rows(call.inputs[0], t, t + 1));
      Values chosen;
      for (const int32_t id : ids.codes<int32_t>()) {
        chosen.push_back(scores[static_cast<size_t>(id)]);
      }
      const auto row = weigh(call, chosen, ids.codes<int32_t>());
      weights.insert(weights.end(), row.begin(), row.end());
    }
    return from_values(weights, right.shape, right.dtype);
  };
}

// value / sum of values * factor.
Values shares(Values values, double factor) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  for (double& value : values) {
    value = value / sum * factor;
  }
  return values;
}

TensorView truncated(const TensorView& y, const OpCall&) {
  return edited(
      y, [](Values& values) { std::transform(values.begin(), values.end(), values.begin(), truncated_to_bf16); });
}

}  // namespace

std::vector<Fault> weighting_faults() {
  std::vector<Fault> faults;
  faults.push_back(make_fault("bb-02",
                              "the router's bias is also in the mixing weights",
                              "layer.*.moe.topk_weights",
                              on_nano(),
                              weighing([](const OpCall& call, Values chosen, std::span<const int32_t> ids) {
                                if (!call.config().has_router_bias()) {
                                  return shares(std::move(chosen), call.config().routed_scaling_factor);
                                }
                                const auto name = "model.layers." + std::to_string(call.op.layer) +
                                                  ".mlp.gate.e_score_correction_bias";
                                const auto bias = model::to_double(call.weights.weight(name));
                                for (size_t slot = 0; slot < ids.size(); ++slot) {
                                  chosen[slot] += bias[static_cast<size_t>(ids[slot])];
                                }
                                return shares(std::move(chosen), call.config().routed_scaling_factor);
                              })));
  faults.push_back(make_fault("bb-04",
                              "weights are not divided by their sum",
                              "layer.*.moe.topk_weights",
                              on_nano(),
                              with_config([](model::ModelConfig& config) { config.norm_topk_prob = false; })));
  faults.push_back(make_fault("bb-05",
                              "without renormalisation the factor is forgotten as well",
                              "layer.*.moe.topk_weights",
                              on_notv3(),
                              with_config([](model::ModelConfig& config) {
                                config.routed_scaling_factor = config.norm_topk_prob ? config.routed_scaling_factor : 1;
                              })));
  faults.push_back(make_fault("bb-07",
                              "the sum that divides the weights may be zero",
                              "layer.*.moe.topk_weights",
                              on_edge(),
                              weighing([](const OpCall& call, const Values& chosen, std::span<const int32_t>) {
                                return shares(chosen, call.config().routed_scaling_factor);
                              })));
  faults.push_back(make_fault("bb-10",
                              "softmax in place of sigmoid, or the reverse",
                              "layer.*.moe.router_scores",
                              on_nano(),
                              with_config([](model::ModelConfig& config) {
                                config.scoring_func = config.scoring_func == model::ScoringFunction::kSigmoid
                                                          ? model::ScoringFunction::kSoftmax
                                                          : model::ScoringFunction::kSigmoid;
                              })));
  faults.push_back(make_fault("h-02",
                              "weights are a softmax over the chosen logits",
                              "layer.*.moe.topk_weights",
                              on_nano(),
                              weighing([](const OpCall&, Values chosen, std::span<const int32_t>) {
                                for (double& value : chosen) {
                                  value = value / (1 - value);  // exp of the logit
                                }
                                return shares(std::move(chosen), 1);
                              })));
  faults.push_back(make_fault("h-12",
                              "weights are divided by the factor instead of multiplied",
                              "layer.*.moe.topk_weights",
                              on_nano(),
                              with_config([](model::ModelConfig& config) {
                                config.routed_scaling_factor = 1 / config.routed_scaling_factor;
                              })));
  faults.push_back(make_fault("h-28",
                              "the weights lack the factor",
                              "layer.*.moe.topk_weights",
                              on_nano(),
                              with_config([](model::ModelConfig& config) { config.routed_scaling_factor = 1; })));
  faults.push_back(make_fault("k-33",
                              "weights stand in ascending expert order, ids do not",
                              "layer.*.moe.topk_weights",
                              on_nano(),
                              weighing([](const OpCall& call, const Values& chosen, std::span<const int32_t> ids) {
                                std::vector<size_t> order(ids.size());
                                std::iota(order.begin(), order.end(), size_t{0});
                                std::sort(
                                    order.begin(), order.end(), [&](size_t a, size_t b) { return ids[a] < ids[b]; });
                                Values sorted;
                                for (const size_t slot : order) {
                                  sorted.push_back(chosen[slot]);
                                }
                                return shares(std::move(sorted), call.config().routed_scaling_factor);
                              })));
  faults.push_back(make_fault("k-34",
                              "weights are divided by the sum over all experts",
                              "layer.*.moe.topk_weights",
                              on_nano(),
                              [](const OpCall& call) {
                                const auto scores = model::to_double(call.inputs[0]);
                                const auto num_experts = static_cast<size_t>(call.inputs[0].row_len());
                                ChangedWeights changed(call.weights);
                                changed.config().norm_topk_prob = false;
                                const auto k = static_cast<size_t>(call.config().num_experts_per_tok);
                                return edited(run_with(call, changed), [&](Values& weights) {
                                  for (size_t i = 0; i < weights.size(); ++i) {
                                    const auto row = scores.begin() + static_cast<int64_t>(i / k * num_experts);
                                    weights[i] /= std::accumulate(row, row + static_cast<int64_t>(num_experts), 0.0);
                                  }
                                });
                              }));
  faults.push_back(make_fault(
      "k-35", "router logits are cut off to BF16", "layer.*.moe.router_logits", on_nano(), with_output(truncated)));
  faults.push_back(make_fault("k-36",
                              "the sigmoid is the tanh of FP16 units, good to 11 bits",
                              "layer.*.moe.router_scores",
                              on_nano(),
                              with_output([](const TensorView& y, const OpCall&) {
                                return edited(y, [](Values& values) {
                                  for (double& value : values) {
                                    value = std::nearbyint(value * 2048) / 2048;
                                  }
                                });
                              })));
  return faults;
}

}  // namespace tools::faults
