// y = x W^T: every projection with FP8 or BF16 weights, one expert's part of a grouped one, and the MTP's joined input.
#pragma once

#include "reference/op_call.hpp"

namespace reference {

// Source: linear() in DeepSeek-V3.2-Exp inference/model.py, act_quant and fp8_gemm in inference/kernel.py.
// Rounding, FP8 weight and rules.gemm == kFp8: x is quantised by rules.quantize (quantize.hpp); for each 128-block of K an FP32
//   dot of the codes, times its two scales (rules.association), added to an FP32 sum; BF16(sum).
// Rounding otherwise: weight BF16 (FP8 weights dequantised to BF16(FP32(code * scale))), FP32 sum, BF16(sum).
// Exact: weight FP32(code * scale), FP64.
// Order: by rules.linear_sum. The written one: dot_in_order; FP8: block_dot in a block, blocks ascending. Tensor cores:
//   tensor_core/linear_dot.hpp. Any: any_order.hpp.
// rules.partial_sums: partial_sums.hpp.
// inputs: x [rows, >= in] (the first in columns); expert parts also topk_ids, through which rows are gathered; mtp_concat two
// halves [rows, in / 2]. Output [rows, out] bf16 (exact: f64).
void linear(const OpCall& call, model::TensorView& result);

}  // namespace reference
