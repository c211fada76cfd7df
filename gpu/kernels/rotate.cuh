// RoPE: the rotated part of every query head, and the rotation that the cache write shares. Covers the op q_rope.
#pragma once

#include "gpu/kernels/quantize_block.cuh"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct RotateQueryArguments {
  const half16* q = nullptr;           // [num_tokens, num_heads, nope + rope]
  const float* cos_sin = nullptr;      // [num_positions, rope / 2, 2]
  const int32_t* positions = nullptr;  // [num_tokens]: rows of cos_sin
  half16* q_rope = nullptr;            // [num_tokens, num_heads, rope]
  int64_t num_tokens = 0;
  int num_heads = 0;
  int nope = 0;  // a multiple of 8
  int rope = 0;  // a multiple of 8
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kRotateThreads = 128;

// Four neighbouring pairs (x0, x1) -> (x0 cos - x1 sin, x0 sin + x1 cos). cos_sin: [4, 2], 16-byte aligned.
// Rounding: each product and the sum in FP32, BF16 once.
GPU_DEVICE Vector<half16, kVectorLen> rotate_vector(const Vector<half16, kVectorLen>& x, const float* cos_sin) {
  Vector<half16, kVectorLen> y;
  GPU_UNROLL
  for (int pair = 0; pair < kVectorLen / 2; pair += 2) {
    const auto turns = load_vector<4>(cos_sin + 2 * pair);
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float x0 = to_float(x.at[2 * (pair + i)]);
      const float x1 = to_float(x.at[2 * (pair + i) + 1]);
      const float cosine = turns.at[2 * i];
      const float sine = turns.at[2 * i + 1];
      y.at[2 * (pair + i)] = to_half16(add(multiply(x0, cosine), -multiply(x1, sine)));
      y.at[2 * (pair + i) + 1] = to_half16(add(multiply(x0, sine), multiply(x1, cosine)));
    }
  }
  return y;
}

// Grid: one block a token. No shared memory. Rows 16-byte aligned.
GPU_KERNEL rotate_query_kernel(RotateQueryArguments arguments) {
  const auto token = static_cast<int64_t>(block_idx().x);
  const int64_t position = arguments.positions[token];
  const int vectors_per_head = arguments.rope / kVectorLen;
  for (int i = static_cast<int>(thread_idx().x); i < arguments.num_heads * vectors_per_head; i += kRotateThreads) {
    const int64_t head = token * arguments.num_heads + i / vectors_per_head;
    const int column = i % vectors_per_head * kVectorLen;
    const auto x =
        load_vector<kVectorLen>(arguments.q + head * (arguments.nope + arguments.rope) + arguments.nope + column);
    store_vector<kVectorLen>(arguments.q_rope + head * arguments.rope + column,
                             rotate_vector(x, arguments.cos_sin + position * arguments.rope + column));
  }
}

inline void rotate_query(Stream stream, const RotateQueryArguments& arguments) {
  require(arguments.nope % kVectorLen == 0 && arguments.rope > 0 && arguments.rope % kVectorLen == 0,
          "rotate_query: nope and rope have to be multiples of 8");
  if (arguments.num_tokens > 0) {
    launch(stream,
           {.name = "rotate_query", .grid = {static_cast<unsigned>(arguments.num_tokens)}, .block = {kRotateThreads}},
           rotate_query_kernel,
           arguments);
  }
}

}  // namespace gpu::DSV3_BACKEND
