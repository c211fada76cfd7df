// silu(gate) * up and the quantiser of the linear that follows, over the valid rows alone.
// Covers the ops mlp.act, moe.shared.act, moe.expert.E.act and their x_fp8 and x_scale.
#pragma once

#include "gpu/kernels/quantize_block.cuh"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct SwigluArguments {
  const half16* gate_up = nullptr;    // [num_groups, max_rows, 2 * dim]: gate, then up
  const int32_t* num_rows = nullptr;  // [num_groups]: valid rows of each group; null: all
  half16* act = nullptr;              // [num_groups, max_rows, dim], or null
  fp8_e4m3* codes = nullptr;          // [num_groups, max_rows, dim], or null: no quantiser
  float* scales = nullptr;            // [num_groups, ceil(dim / 128), max_rows]
  int64_t max_rows = 0;
  int num_groups = 1;
  int dim = 0;  // a multiple of 8
  ScaleFormat scale_format = ScaleFormat::kFp32;
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kSwigluThreads = 256;

// x / (1 + exp(-x)): for x below about -88 the exponential is infinite and the result -0.
GPU_DEVICE float silu(float x) {
  return divide(x, add(1.0f, expf(-x)));
}

// Grid: (max_rows, num_groups); a block beyond the group's rows does nothing and touches nothing. No shared memory. Rows 16-byte aligned.
// Rounding: silu and the product in FP32; BF16 once; the codes from the BF16 value.
GPU_KERNEL swiglu_kernel(SwigluArguments arguments) {
  const auto row = static_cast<int64_t>(block_idx().x);
  const auto group = static_cast<int64_t>(block_idx().y);
  if (arguments.num_rows != nullptr && row >= arguments.num_rows[group]) {
    return;
  }
  const int64_t flat_row = group * arguments.max_rows + row;
  const half16* const gate = arguments.gate_up + flat_row * 2 * arguments.dim;
  // Whole warps run every round, so that the lanes of a 128-block are together; lanes beyond the row hold zeros.
  for (int first = 0; first < arguments.dim; first += kSwigluThreads * kVectorLen) {
    const int column = first + static_cast<int>(thread_idx().x) * kVectorLen;
    const bool is_inside = column < arguments.dim;
    Vector<half16, kVectorLen> act{};
    if (is_inside) {
      const auto gates = load_vector<kVectorLen>(gate + column);
      const auto ups = load_vector<kVectorLen>(gate + arguments.dim + column);
      GPU_UNROLL
      for (int i = 0; i < kVectorLen; ++i) {
        act.at[i] = to_half16(multiply(silu(to_float(gates.at[i])), to_float(ups.at[i])));
      }
      if (arguments.act != nullptr) {
        store_vector<kVectorLen>(arguments.act + flat_row * arguments.dim + column, act);
      }
    }
    if (arguments.codes != nullptr) {
      Vector<fp8_e4m3, kVectorLen> codes;
      const float scale = quantize_block(act, arguments.scale_format, codes);
      if (is_inside) {
        store_vector<kVectorLen>(arguments.codes + flat_row * arguments.dim + column, codes);
        if (static_cast<int>(thread_idx().x) % kLanesPerBlock == 0) {
          const int64_t num_blocks = (arguments.dim + kScaleBlockLen - 1) / kScaleBlockLen;
          arguments.scales[(group * num_blocks + column / kScaleBlockLen) * arguments.max_rows + row] = scale;
        }
      }
    }
  }
}

inline void swiglu(Stream stream, const SwigluArguments& arguments) {
  require(arguments.dim > 0 && arguments.dim % kVectorLen == 0, "swiglu: dim has to be a multiple of 8");
  require(arguments.codes == nullptr || arguments.scales != nullptr, "swiglu: codes need scales");
  if (arguments.max_rows == 0 || arguments.num_groups == 0) {
    return;
  }
  launch(stream,
         {.name = "swiglu",
          .grid = {static_cast<unsigned>(arguments.max_rows), static_cast<unsigned>(arguments.num_groups)},
          .block = {kSwigluThreads}},
         swiglu_kernel,
         arguments);
}

}  // namespace gpu::DSV3_BACKEND
