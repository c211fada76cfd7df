// The quantiser of linears whose input no kernel in front of them quantises: o_proj after the absorbed form. Covers <linear>.x_fp8, x_scale.
#pragma once

#include "gpu/kernels/quantize_block.cuh"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct QuantizeRowsArguments {
  const half16* x = nullptr;  // [num_rows, row_len]
  fp8_e4m3* codes = nullptr;  // [num_rows, row_len]
  float* scales = nullptr;    // [ceil(row_len / 128), scale_stride]: row-minor, as the GEMM reads them
  int64_t num_rows = 0;
  int64_t scale_stride = 0;  // at least num_rows
  int row_len = 0;           // a multiple of 8
  ScaleFormat scale_format = ScaleFormat::kFp32;
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kQuantizeThreads = 128;

// Grid: one block a row. No shared memory. Rows 16-byte aligned; row_len may end inside a block, whose scale its own elements decide.
GPU_KERNEL quantize_rows_kernel(QuantizeRowsArguments arguments) {
  const auto row = static_cast<int64_t>(block_idx().x);
  for (int first = 0; first < arguments.row_len; first += kQuantizeThreads * kVectorLen) {
    const int column = first + static_cast<int>(thread_idx().x) * kVectorLen;
    const bool is_inside = column < arguments.row_len;
    Vector<half16, kVectorLen> x{};
    if (is_inside) {
      x = load_vector<kVectorLen>(arguments.x + row * arguments.row_len + column);
    }
    Vector<fp8_e4m3, kVectorLen> codes;
    const float scale = quantize_block(x, arguments.scale_format, codes);
    if (is_inside) {
      store_vector<kVectorLen>(arguments.codes + row * arguments.row_len + column, codes);
      if (column % kScaleBlockLen == 0) {
        arguments.scales[column / kScaleBlockLen * arguments.scale_stride + row] = scale;
      }
    }
  }
}

inline void quantize_rows(Stream stream, const QuantizeRowsArguments& arguments) {
  require(arguments.row_len > 0 && arguments.row_len % kVectorLen == 0,
          "quantize_rows: row_len has to be a multiple of 8");
  require(arguments.scale_stride >= arguments.num_rows, "quantize_rows: scale_stride is at least num_rows");
  if (arguments.num_rows > 0) {
    launch(stream,
           {.name = "quantize_rows", .grid = {static_cast<unsigned>(arguments.num_rows)}, .block = {kQuantizeThreads}},
           quantize_rows_kernel,
           arguments);
  }
}

}  // namespace gpu::DSV3_BACKEND
