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
  const auto dtype = call.rules.router == RouterRule::kFp32 ? model::DType::kF32 : model::DType::kBF16;
  const auto& logits = call.inputs[0];
  auto result = empty_estimate(logits.shape, stored_as(call.rules, dtype));
  if (call.config().scoring_func == model::ScoringFunction::kSigmoid) {
    for (size_t i = 0; i < logits.value.size(); ++i) {
      const double score = sigmoid_f64(logits.value[i]);
      const double slope = score * (1 - score);
      set(result, static_cast<int64_t>(i), {score, slope * logits.error[i] + 2 * kFunctionUnits * model.unit * score});
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
      set(result, t * num_experts + static_cast<int64_t>(e), {score, score * std::expm1(shift + common)});
    }
  }
  return result;
}

// s_e / (sum + 1e-20) * factor: positive sum of k scores, division, product.
model::Estimate estimate_router_weights(const EstimateCall& call) {
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  const auto& config = call.config();
  const auto& ids = call.inputs[1];
  const int64_t k = row_len(ids);
  auto result = empty_estimate(ids.shape, stored_as(call.rules, model::DType::kF32));
  for (int64_t t = 0; t < ids.shape.front(); ++t) {
    TermSums sum;
    std::vector<ValueWithError> chosen;
    for (int64_t slot = 0; slot < k; ++slot) {
      const auto score = row_of(call.inputs[0], t, static_cast<int64_t>(ids.value[static_cast<size_t>(t * k + slot)]), 1);
      chosen.push_back({score.value[0], score.error[0]});
      sum.add(score.value[0], score.error[0]);
    }
    const double denominator = config.norm_topk_prob ? sum.sum + 1e-20 : 1.0;
    const double sum_error = config.norm_topk_prob ? (order_error(model, sum) + sum.input_error) / denominator : 0;
    for (int64_t slot = 0; slot < k; ++slot) {
      const auto& score = chosen[static_cast<size_t>(slot)];
      const double scale = config.routed_scaling_factor / denominator;
      const double value = score.value * scale;
      set(result,
          t * k + slot,
          {value, score.error * std::abs(scale) + std::abs(value) * (sum_error + (kFunctionUnits + 1) * model.unit)});
    }
  }
  return result;
}

}  // namespace reference
