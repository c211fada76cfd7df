// Router scores and weights. The choices themselves are judged by margins: bounds/routing.hpp.
#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/builder.hpp"
#include "reference/numerics/functions.hpp"

namespace reference {

// Sigmoid: its slope s (1 - s) carries the logit's error; the function errs by 2 ulp, twice for exp and division.
// Softmax: as in the attention core.
model::Estimate estimate_router_scores(const EstimateCall& call) {
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  const bool is_softmax = call.config().scoring_func == model::ScoringFunction::kSoftmax;
  const auto dtype = call.rules.router == RouterRule::kFp32 || is_softmax ? model::DType::kF32 : call.rules.half;
  const auto& logits = call.inputs[0];
  auto result = empty_estimate(logits.shape, stored_as(call.rules, dtype));
  if (!is_softmax) {
    for (size_t i = 0; i < logits.value.size(); ++i) {
      const double score = sigmoid_f64(logits.value[i]);
      const double slope = score * (1 - score);
      set(result,
          static_cast<int64_t>(i),
          {score, slope * logits.error[i] + 2 * kFunctionUnits * model.unit * score + flush_error(call.rules)});
    }
    return result;
  }
  const int64_t num_experts = row_len(logits);
  for (int64_t t = 0; t < logits.shape.front(); ++t) {
    const auto row = row_of(logits, t, 0, num_experts);
    const double top = *std::max_element(row.value.begin(), row.value.end());
    TermSums sum;
    double mean_error = 0;
    for (size_t e = 0; e < row.value.size(); ++e) {
      sum.add(exp_f64(row.value[e] - top));
      mean_error += exp_f64(row.value[e] - top) * row.error[e];
    }
    mean_error /= sum.sum;
    const double common = mean_error + order_error(model, sum) / sum.sum + 2 * kFunctionUnits * model.unit;
    for (size_t e = 0; e < row.value.size(); ++e) {
      const double score = exp_f64(row.value[e] - top) / sum.sum;
      const double shift = row.error[e] + model.unit * std::abs(row.value[e] - top);
      set(result,
          t * num_experts + static_cast<int64_t>(e),
          {score, score * std::expm1(shift + common) + flush_error(call.rules)});
    }
  }
  return result;
}

// s_e / (sum + 1e-20) * factor: positive sum of k scores, division, product; the BF16 form rounds sum and quotient.
model::Estimate estimate_router_weights(const EstimateCall& call) {
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  const auto& config = call.config();
  const auto& ids = call.inputs[1];
  const int64_t k = row_len(ids);
  const bool bf16_stored = call.rules.router == RouterRule::kBf16 && !call.rules.exact();
  const bool bf16_steps = bf16_stored && config.scoring_func == model::ScoringFunction::kSigmoid;
  const auto step = [&](ValueWithError element) {
    return bf16_steps ? rounded_value(call.rules.half, element) : element;
  };
  auto result = empty_estimate(ids.shape, stored_as(call.rules, bf16_stored ? call.rules.half : model::DType::kF32));
  const double factor = routed_factor(call.rules, config);
  for (int64_t t = 0; t < ids.shape.front(); ++t) {
    TermSums sum;
    std::vector<ValueWithError> chosen;
    for (int64_t slot = 0; slot < k; ++slot) {
      const auto score =
          row_of(call.inputs[0], t, static_cast<int64_t>(ids.value[static_cast<size_t>(t * k + slot)]), 1);
      chosen.push_back({score.value[0], score.error[0]});
      sum.add(score.value[0], score.error[0]);
    }
    ValueWithError denominator{1.0, 0.0};
    if (config.norm_topk_prob) {
      denominator = step({sum.sum, order_error(model, sum) + sum.input_error});
      denominator.value += 1e-20;
    }
    for (int64_t slot = 0; slot < k; ++slot) {
      const auto& score = chosen[static_cast<size_t>(slot)];
      const double share = score.value / denominator.value;
      const double share_error = score.error / denominator.value + share * denominator.error / denominator.value;
      const auto quotient = step({share, share_error + share * kFunctionUnits * model.unit});
      const double value = quotient.value * factor;
      set(result, t * k + slot, {value, quotient.error * std::abs(factor) + std::abs(value) * model.unit});
    }
  }
  return result;
}

}  // namespace reference
