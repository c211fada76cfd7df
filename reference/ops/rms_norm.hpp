// RMSNorm of each token: y = x / rms(x) * gain.
#pragma once

#include <span>

#include "reference/op_call.hpp"

namespace reference {

// Source: V3 report eq. 1 (pre-norm); RMSNorm in DeepSeek-V3(.2-Exp) inference/model.py; HF DeepseekV3RMSNorm.
// Rounding: sum of squares and 1 / rms in double, rounded once to FP32; x * r and * gain in FP32; then rules.norm.
// The gain is FP16(gain) under profile fp16; eps is that of norm_eps (residual_stream.hpp).
// Order: sum_of_squares_in_order (numerics/reduce.hpp), in double.
// inputs: x [tokens, >= hidden] (the first hidden columns), or after attention {stored sum, summand, layer input}: rules.residual
// says which of them the norm reads. Output [tokens, hidden] bf16 (exact: f64). A zero row gives zeros.
void rms_norm(const OpCall& call, model::TensorView& result);

// One row, rounded as rules.norm says. Checks x.size() == gain.size() == y.size() > 0. Instantiated for float and double (which rounds nothing).
template <typename T>
void rms_norm_row(const Rules& rules, double eps, std::span<const T> x, std::span<const float> gain, std::span<T> y);

}  // namespace reference
