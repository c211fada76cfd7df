// SwiGLU and the weighted sum of experts.
#include <cmath>
#include <utility>

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
  auto activated = empty_estimate(gate.shape, call.rules.half);
  for (size_t i = 0; i < gate.value.size(); ++i) {
    const double value = silu_f64(gate.value[i]);
    set(activated,
        static_cast<int64_t>(i),
        {value,
         1.1 * gate.error[i] + 2 * kFunctionUnits * unit * std::abs(value) +
             std::abs(gate.value[i]) * flush_error(call.rules)});
  }
  if (call.rules.swiglu == SwigluRule::kBf16Steps && !call.rules.exact()) {
    activated = rounded(activated);
  }
  auto result = empty_estimate(gate.shape, stored_as(call.rules, call.rules.half));
  for (size_t i = 0; i < gate.value.size(); ++i) {
    const double value = activated.value[i] * up.value[i];
    const double error =
        activated.error[i] * (std::abs(up.value[i]) + up.error[i]) + std::abs(activated.value[i]) * up.error[i];
    set(result, static_cast<int64_t>(i), {value, error + unit * std::abs(value)});
  }
  return result;
}

namespace {

// A sum of k products for each token, on top of `start` if it is not empty. The BF16 forms round product and running sum at each
// step, in their order.
model::Estimate combined(const EstimateCall& call, const model::Estimate& start) {
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  const auto& ids = call.inputs[0];
  const auto& weights = call.inputs[1];
  const int64_t k = row_len(ids);
  const int64_t hidden = call.config().hidden_size;
  const CombineRule rule = call.rules.combine;
  const bool bf16_steps = rounds_each_step(rule) && !call.rules.exact();
  const auto choices = choices_of_tokens(
      model::make_tensor(model::DType::kI32, ids.shape, std::vector<int32_t>(ids.value.begin(), ids.value.end())),
      !sums_by_slot(rule));
  const bool in_parts = call.rules.expert_ranks > 1 && !call.rules.exact();
  const auto dtype = rule == CombineRule::kFp32 && !in_parts ? model::DType::kF32 : call.rules.half;
  auto result = empty_estimate({ids.shape.front(), hidden}, stored_as(call.rules, dtype));
  for (size_t t = 0; t < choices.size(); ++t) {
    std::vector<TermSums> sums(static_cast<size_t>(hidden));
    for (size_t i = 0; i < sums.size() && !start.value.empty(); ++i) {
      sums[i].sum = start.value[t * sums.size() + i];
      sums[i].input_error = start.error[t * sums.size() + i];
    }
    std::vector<ValueWithError> total(in_parts ? sums.size() : 0);
    int64_t rank = 0;
    // A rank's sum is rounded before it joins those of the ranks before it, by an FP32 addition.
    const auto close_part = [&] {
      for (size_t i = 0; i < sums.size(); ++i) {
        const auto part =
            rounded_value(call.rules.half, {sums[i].sum, order_error(model, sums[i]) + sums[i].input_error});
        const double value = total[i].value + part.value;
        total[i] = {value, total[i].error + part.error + std::abs(value) * model.unit};
      }
      sums.assign(sums.size(), TermSums());
    };
    for (const Choice& choice : choices[t]) {
      if (in_parts) {
        const int64_t next = rank_of_expert(choice.expert, call.config().n_routed_experts, call.rules.expert_ranks);
        if (std::exchange(rank, next) != next) {
          close_part();
        }
      }
      const auto w = row_of(weights, static_cast<int64_t>(t), choice.slot, 1);
      const auto y = row_of(call.expert_outputs[static_cast<size_t>(choice.expert)], choice.row, 0, hidden);
      for (size_t i = 0; i < sums.size(); ++i) {
        const double product = y.value[i] * w.value[0];
        const double error = y.error[i] * (std::abs(w.value[0]) + w.error[0]) + std::abs(y.value[i]) * w.error[0];
        if (!bf16_steps) {
          sums[i].add(product, error);
          continue;
        }
        const auto term = rounded_value(call.rules.half, {product, error + std::abs(product) * model.unit});
        const double value = sums[i].sum + term.value;
        const double value_error = sums[i].input_error + term.error + std::abs(value) * model.unit;
        const auto stored = rounded_value(call.rules.half, {value, value_error});
        sums[i].sum = stored.value;
        sums[i].input_error = stored.error;
      }
    }
    if (in_parts) {
      close_part();
    }
    CHECK_EQ(static_cast<int64_t>(choices[t].size()), k);
    for (size_t i = 0; i < total.size(); ++i) {
      set(result, static_cast<int64_t>(t) * hidden + static_cast<int64_t>(i), total[i]);
    }
    for (size_t i = 0; i < sums.size() && !in_parts; ++i) {
      const double order = bf16_steps ? 0 : order_error(model, sums[i]);
      set(result,
          static_cast<int64_t>(t) * hidden + static_cast<int64_t>(i),
          {sums[i].sum, order + sums[i].input_error});
    }
  }
  return result;
}

}  // namespace

model::Estimate estimate_combine(const EstimateCall& call) {
  return combined(call, {});
}

// routed + shared in FP32, then BF16. Where the call begins at the experts (topk_ids, topk_weights, experts, shared), the shared
// expert may as well come first.
model::Estimate estimate_moe_output(const EstimateCall& call) {
  const auto dtype = stored_as(call.rules, call.rules.half);
  const bool begins_at_experts = !call.expert_outputs.empty();
  const bool has_shared = call.inputs.size() == (begins_at_experts ? 4U : 2U);
  if (begins_at_experts && has_shared && takes_shared_first(call.rules.combine)) {
    return combined(call, call.inputs.back());
  }
  auto routed = begins_at_experts ? rounded(combined(call, {})) : call.inputs[0];
  if (!has_shared) {
    routed.dtype = dtype;
    return routed;
  }
  return sum_with_error(routed, call.inputs.back(), sum_model(call.rules, call.num_sigmas).unit, dtype);
}

}  // namespace reference
