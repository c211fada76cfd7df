// SwiGLU and the weighted sum of experts.
#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/builder.hpp"
#include "reference/numerics/functions.hpp"
#include "reference/tokens.hpp"

namespace reference {

// silu = gate / (1 + exp(-gate)): exp and division of the device, one product; its slope is at most 1.1.
model::Estimate estimate_swiglu(const EstimateCall& call) {
  const double unit = sum_model(call.rules, call.num_sigmas).unit;
  const auto& gate = call.inputs[0];
  const auto& up = call.inputs[1];
  auto activated = empty_estimate(gate.shape, model::DType::kBF16);
  for (size_t i = 0; i < gate.value.size(); ++i) {
    const double value = silu_f64(gate.value[i]);
    set(activated, static_cast<int64_t>(i), {value, 1.1 * gate.error[i] + 2 * kFunctionUnits * unit * std::abs(value)});
  }
  if (call.rules.swiglu == SwigluRule::kBf16Steps && !call.rules.exact()) {
    activated = rounded(activated);
  }
  auto result = empty_estimate(gate.shape, stored_as(call.rules, model::DType::kBF16));
  for (size_t i = 0; i < gate.value.size(); ++i) {
    const double value = activated.value[i] * up.value[i];
    const double error = activated.error[i] * (std::abs(up.value[i]) + up.error[i]) + std::abs(activated.value[i]) * up.error[i];
    set(result, static_cast<int64_t>(i), {value, error + unit * std::abs(value)});
  }
  return result;
}

// A sum of k products for each token. The BF16 form rounds product and running sum at each step, in ascending expert id.
model::Estimate estimate_combine(const EstimateCall& call) {
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  const auto& ids = call.inputs[0];
  const auto& weights = call.inputs[1];
  const int64_t tokens = ids.shape.front();
  const int64_t k = row_len(ids);
  const int64_t hidden = call.config().hidden_size;
  const bool bf16_steps = call.rules.combine == CombineRule::kBf16 && !call.rules.exact();
  const auto id_tensor = model::make_tensor(
      model::DType::kI32, ids.shape, std::vector<int32_t>(ids.value.begin(), ids.value.end()));
  std::vector<TermSums> sums(static_cast<size_t>(tokens * hidden));
  for (size_t e = 0; e < call.expert_outputs.size(); ++e) {
    const auto& output = call.expert_outputs[e];
    if (output.value.empty()) {
      continue;
    }
    const auto chosen_by = tokens_of_expert(id_tensor, static_cast<int64_t>(e));
    for (size_t row = 0; row < chosen_by.size(); ++row) {
      const int64_t t = chosen_by[row];
      const auto slots = ids.value.begin() + t * k;
      const auto slot = t * k + (std::find(slots, slots + k, static_cast<double>(e)) - slots);
      const double w = weights.value[static_cast<size_t>(slot)];
      const double w_error = weights.error[static_cast<size_t>(slot)];
      const auto y = row_of(output, static_cast<int64_t>(row), 0, hidden);
      for (int64_t i = 0; i < hidden; ++i) {
        const auto element = static_cast<size_t>(i);
        const double product = y.value[element] * w;
        const double error = y.error[element] * (std::abs(w) + w_error) + std::abs(y.value[element]) * w_error;
        TermSums& sum = sums[static_cast<size_t>(t * hidden + i)];
        if (!bf16_steps) {
          sum.add(product, error);
          continue;
        }
        const auto term = rounded_value(model::DType::kBF16, {product, error + std::abs(product) * model.unit});
        const double value = sum.sum + term.value;
        const auto stored =
            rounded_value(model::DType::kBF16, {value, sum.input_error + term.error + std::abs(value) * model.unit});
        sum.sum = stored.value;
        sum.input_error = stored.error;
      }
    }
  }
  auto result =
      empty_estimate({tokens, hidden}, stored_as(call.rules, bf16_steps ? model::DType::kBF16 : model::DType::kF32));
  for (size_t i = 0; i < sums.size(); ++i) {
    set(result, static_cast<int64_t>(i), {sums[i].sum, (bf16_steps ? 0 : order_error(model, sums[i])) + sums[i].input_error});
  }
  return result;
}

}  // namespace reference
