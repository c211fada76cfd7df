// Residual add, RMSNorm and, if asked, the quantiser of the linear that follows, in one pass over each row.
// Covers the ops attn_residual or output, attn_norm or ffn_norm, and their x_fp8 and x_scale.
#pragma once

#include "gpu/kernels/quantize_block.cuh"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct RmsNormArguments {
  const half16* x = nullptr;         // [num_tokens, hidden], rows x_stride apart
  const half16* residual = nullptr;  // [num_tokens, hidden], or null: the norm of x alone
  const half16* gain = nullptr;      // [hidden]
  half16* residual_out = nullptr;  // [num_tokens, hidden]: BF16(x + residual); null without residual. May be `residual`
  half16* normed = nullptr;        // [num_tokens, hidden], rows normed_stride apart; or null
  fp8_e4m3* codes = nullptr;       // [num_tokens, hidden], or null: no quantiser
  float* scales = nullptr;         // [ceil(hidden / 128), scale_stride]: token-minor, as the GEMM reads them
  int64_t num_tokens = 0;
  int64_t x_stride = 0;       // elements; lets the kernel read the first columns of a wider row
  int64_t normed_stride = 0;  // elements; 0: hidden. Lets two norms write one row side by side
  int64_t scale_stride = 0;   // at least num_tokens
  int hidden = 0;             // a multiple of 8, at most 8192
  float epsilon = 0;
  ScaleFormat scale_format = ScaleFormat::kFp32;
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kRmsNormThreads = 256;
inline constexpr int kRmsNormVectors = 4;  // held by one thread
inline constexpr int kRmsNormMaxHidden = kRmsNormThreads * kRmsNormVectors * kVectorLen;

struct RmsNormShared {
  float sums[kRmsNormThreads / kLanes];
};

// The work of the block that has this token; load_x(column) gives 8 elements of x from there on.
// Rounding: x + residual in FP32 and from there unrounded into the norm (profile v32); squares, mean, 1 / sqrt(mean + epsilon), x * r
// and * gain in FP32; BF16 once. Order of the sum of squares: a thread's own elements ascending, then block_sum.
template <typename LoadX>
GPU_DEVICE void normalise_row(const RmsNormArguments& arguments,
                              int64_t token,
                              RmsNormShared& shared,
                              const LoadX& load_x) {
  const int thread = static_cast<int>(thread_idx().x);
  const int64_t row = token * arguments.hidden;
  const int64_t normed_row = token * (arguments.normed_stride != 0 ? arguments.normed_stride : arguments.hidden);
  float x[kRmsNormVectors][kVectorLen] = {};
  float sum = 0;
  GPU_UNROLL
  for (int v = 0; v < kRmsNormVectors; ++v) {
    const int column = (v * kRmsNormThreads + thread) * kVectorLen;
    if (column < arguments.hidden) {
      const Vector<half16, kVectorLen> mine = load_x(column);
      Vector<half16, kVectorLen> residual{};
      if (arguments.residual != nullptr) {
        residual = load_vector<kVectorLen>(arguments.residual + row + column);
      }
      GPU_UNROLL
      for (int i = 0; i < kVectorLen; ++i) {
        x[v][i] = to_float(mine.at[i]);
        if (arguments.residual != nullptr) {
          x[v][i] = add(x[v][i], to_float(residual.at[i]));
          residual.at[i] = to_half16(x[v][i]);
        }
        sum = add(sum, multiply(x[v][i], x[v][i]));
      }
      if (arguments.residual != nullptr) {
        store_vector<kVectorLen>(arguments.residual_out + row + column, residual);
      }
    }
  }
  const float mean = divide(block_sum(sum, shared.sums), static_cast<float>(arguments.hidden));
  const float inverse_rms = divide(1.0f, square_root(add(mean, arguments.epsilon)));
  GPU_UNROLL
  for (int v = 0; v < kRmsNormVectors; ++v) {
    const int column = (v * kRmsNormThreads + thread) * kVectorLen;
    Vector<half16, kVectorLen> normed{};
    if (column < arguments.hidden) {
      const auto gain = load_vector<kVectorLen>(arguments.gain + column);
      GPU_UNROLL
      for (int i = 0; i < kVectorLen; ++i) {
        normed.at[i] = to_half16(multiply(multiply(x[v][i], inverse_rms), to_float(gain.at[i])));
      }
      if (arguments.normed != nullptr) {
        store_vector<kVectorLen>(arguments.normed + normed_row + column, normed);
      }
    }
    // The whole warp takes part, lanes beyond the row with zeros.
    if (arguments.codes != nullptr && v * kRmsNormThreads * kVectorLen < arguments.hidden) {
      Vector<fp8_e4m3, kVectorLen> codes;
      const float scale = quantize_block(normed, arguments.scale_format, codes);
      if (column < arguments.hidden) {
        store_vector<kVectorLen>(arguments.codes + row + column, codes);
        if (thread % kLanesPerBlock == 0) {
          arguments.scales[column / kScaleBlockLen * arguments.scale_stride + token] = scale;
        }
      }
    }
  }
}

// Grid: one block a token. Shared memory: RmsNormShared. All rows 16-byte aligned.
GPU_KERNEL rms_norm_kernel(RmsNormArguments arguments) {
  const auto token = static_cast<int64_t>(block_idx().x);
  const half16* const x = arguments.x + token * arguments.x_stride;
  normalise_row(arguments, token, *shared_memory_as<RmsNormShared>(), [&](int column) {
    return load_vector<kVectorLen>(x + column);
  });
}

// What the kernel supports. Throws ArgumentError.
inline void check_norm(const RmsNormArguments& arguments) {
  require(arguments.hidden > 0 && arguments.hidden % kVectorLen == 0 && arguments.hidden <= kRmsNormMaxHidden,
          "rms_norm: hidden has to be a multiple of 8 up to 8192");
  require(arguments.x_stride % kVectorLen == 0 && arguments.x_stride >= arguments.hidden,
          "rms_norm: rows of x have to start at multiples of 16 bytes and hold hidden elements");
  require(arguments.normed_stride % kVectorLen == 0 &&
              (arguments.normed_stride == 0 || arguments.normed_stride >= arguments.hidden),
          "rms_norm: rows of normed have to start at multiples of 16 bytes and hold hidden elements");
  require((arguments.residual == nullptr) == (arguments.residual_out == nullptr),
          "rms_norm: residual and residual_out come together");
  require(arguments.codes == nullptr || (arguments.scales != nullptr && arguments.scale_stride >= arguments.num_tokens),
          "rms_norm: codes need scales with a stride of at least num_tokens");
}

inline void rms_norm(Stream stream, const RmsNormArguments& arguments) {
  check_norm(arguments);
  if (arguments.num_tokens == 0) {
    return;
  }
  launch(stream,
         {.name = "rms_norm",
          .grid = {static_cast<unsigned>(arguments.num_tokens)},
          .block = {kRmsNormThreads},
          .shared_bytes = sizeof(RmsNormShared)},
         rms_norm_kernel,
         arguments);
}

}  // namespace gpu::DSV3_BACKEND
