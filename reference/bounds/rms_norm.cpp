// RMSNorm: a positive sum, an inverse square root, two products.
#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/builder.hpp"
#include "reference/numerics/round.hpp"
#include "reference/values.hpp"

namespace reference {
namespace {

// What the norm reads (ops/rms_norm.cpp): its one input, or the residual sum. The FP32 addition of the sum errs by u.
model::Estimate norm_input(const EstimateCall& call) {
  if (call.inputs.size() == 1) {
    return call.inputs[0];
  }
  if (call.rules.residual == ResidualRule::kRounded && !call.rules.exact()) {
    return rounded(estimate_residual_add({.rules = call.rules,
                                          .workload = call.workload,
                                          .weights = call.weights,
                                          .op = call.op,
                                          .inputs = {call.inputs[1], call.inputs[2]},
                                          .num_sigmas = call.num_sigmas}));
  }
  auto sum = estimate_residual_add({.rules = call.rules,
                                    .workload = call.workload,
                                    .weights = call.weights,
                                    .op = call.op,
                                    .inputs = {call.inputs[1], call.inputs[2]},
                                    .num_sigmas = call.num_sigmas});
  sum.dtype = stored_as(call.rules, model::DType::kF32);
  return rounded(sum);
}

}  // namespace

// |y - exact| <= |exact| * (relative error of the sum of squares / 2 + function + 2 u), plus what errors of x amount to:
// each own element directly, and all of them through the mean. The sum is positive, so its order error relative to itself is
// halved by the square root. With two roundings the inner one happens to the estimate before the gain.
model::Estimate estimate_rms_norm(const EstimateCall& call) {
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  auto gain = to_double(call.weights.weight(call.op.weights[0]));
  if (call.rules.half == model::DType::kF16) {
    std::ranges::for_each(gain, [](double& value) { value = round_to_format(model::DType::kF16, value); });
  }
  const double eps = norm_eps(call.rules, call.config(), call.op);
  const auto hidden = static_cast<int64_t>(gain.size());
  const model::Estimate x = norm_input(call);
  const int64_t num_rows = x.shape.front();
  auto result = empty_estimate({num_rows, hidden}, stored_as(call.rules, call.rules.half));
  auto normed = empty_estimate({1, hidden}, call.rules.half);
  for (int64_t t = 0; t < num_rows; ++t) {
    const auto row = row_of(x, t, 0, hidden);
    TermSums squares;
    for (size_t i = 0; i < row.value.size(); ++i) {
      squares.add(row.value[i] * row.value[i], 2 * std::abs(row.value[i]) * row.error[i] + row.error[i] * row.error[i]);
    }
    const double mean = squares.sum / static_cast<double>(hidden);
    const double inverse_rms = 1.0 / std::sqrt(mean + eps);
    const double sum_error = squares.sum > 0 ? (order_error(model, squares) + squares.input_error) / squares.sum : 0;
    const double relative = sum_error / 2 + (kFunctionUnits + 2) * model.unit;
    for (int64_t i = 0; i < hidden; ++i) {
      const auto element = static_cast<size_t>(i);
      const double value = row.value[element] * inverse_rms;
      set(normed, i, {value, std::abs(value) * relative + row.error[element] * inverse_rms});
    }
    const bool twice = call.rules.norm == NormRounding::kTwice && !call.rules.exact();
    const model::Estimate inner = twice ? rounded(normed) : normed;
    for (int64_t i = 0; i < hidden; ++i) {
      const auto element = static_cast<size_t>(i);
      const double value = inner.value[element] * gain[element];
      set(result,
          t * hidden + i,
          {value, inner.error[element] * std::abs(gain[element]) + std::abs(value) * model.unit});
    }
  }
  return result;
}

}  // namespace reference
