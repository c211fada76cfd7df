// Additions of two tensors: one FP32 rounding each, or none where the FP32 sum is what is stored.
#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/builder.hpp"

namespace reference {
namespace {

// left + right; `unit` is the roundoff of an addition whose result is rounded once more afterwards. The FP32 sum of two given
// numbers has no error where it is exact.
model::Estimate sum_of(const model::Estimate& left, const model::Estimate& right, double unit, model::DType dtype) {
  CHECK_EQ(left.value.size(), right.value.size());
  auto result = empty_estimate(left.shape, dtype);
  for (size_t i = 0; i < left.value.size(); ++i) {
    const double value = left.value[i] + right.value[i];
    const double input_error = left.error[i] + right.error[i];
    const bool exact = input_error == 0 && static_cast<double>(static_cast<float>(value)) == value;
    set(result, static_cast<int64_t>(i), {value, input_error + (exact ? 0 : std::abs(value) * unit)});
  }
  return result;
}

}  // namespace

// BF16(o_proj + BF16(layer input)): the inner rounding is part of the rule, the FP32 addition errs by u before BF16.
model::Estimate estimate_residual_add(const EstimateCall& call) {
  model::Estimate input = call.inputs[1];
  if (!call.rules.exact()) {
    input.dtype = model::DType::kBF16;
    input = rounded(input);
  }
  const double unit = sum_model(call.rules, call.num_sigmas).unit;
  return sum_of(call.inputs[0], input, unit, stored_as(call.rules, model::DType::kBF16));
}

// The pair's FP32 sum is stored as it is: no freedom but the rounding to FP32. A BF16 sum has the FP32 addition before it.
model::Estimate estimate_layer_output(const EstimateCall& call) {
  const double unit = sum_model(call.rules, call.num_sigmas).unit;
  const bool pair = call.rules.residual == ResidualRule::kFusedPair && !call.rules.exact();
  return sum_of(call.inputs[0],
                call.inputs[1],
                pair ? 0 : unit,
                stored_as(call.rules, pair ? model::DType::kF32 : model::DType::kBF16));
}

// routed + shared in FP32, then BF16.
model::Estimate estimate_moe_output(const EstimateCall& call) {
  const double unit = sum_model(call.rules, call.num_sigmas).unit;
  const auto dtype = stored_as(call.rules, model::DType::kBF16);
  if (call.inputs.size() == 1) {
    auto result = call.inputs[0];
    result.dtype = dtype;
    return result;
  }
  return sum_of(call.inputs[0], call.inputs[1], unit, dtype);
}

}  // namespace reference
