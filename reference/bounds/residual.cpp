// Additions of two tensors: one FP32 rounding each, or none where the FP32 sum is what is stored.
#include "reference/bounds/bounds.hpp"
#include "reference/bounds/builder.hpp"

namespace reference {

// BF16(o_proj + BF16(layer input)): the inner rounding is part of the rule, the FP32 addition errs by u before BF16.
model::Estimate estimate_residual_add(const EstimateCall& call) {
  model::Estimate input = call.inputs[1];
  if (!call.rules.exact()) {
    input.dtype = call.rules.half;
    input = rounded(input);
  }
  const double unit = sum_model(call.rules, call.num_sigmas).unit;
  return sum_with_error(call.inputs[0], input, unit, stored_as(call.rules, call.rules.half));
}

// The pair's FP32 sum is stored as it is: no freedom but the rounding to FP32. A BF16 sum has the FP32 addition before it.
model::Estimate estimate_layer_output(const EstimateCall& call) {
  const double unit = sum_model(call.rules, call.num_sigmas).unit;
  const bool pair = call.rules.residual == ResidualRule::kFusedPair && !call.rules.exact();
  return sum_with_error(call.inputs[0],
                        call.inputs[1],
                        pair ? 0 : unit,
                        stored_as(call.rules, pair ? model::DType::kF32 : call.rules.half));
}

}  // namespace reference
