// The routed experts' outputs, weighted and summed, plus the shared expert. Covers the ops moe.routed and ffn of a MoE layer.
#pragma once

#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct CombineArguments {
  const half16* expert_rows = nullptr;   // [num rows, hidden]: what the experts gave, in any order
  const int32_t* row_of_slot = nullptr;  // [num_tokens, k]: where the output of that slot lies
  const int32_t* topk_ids = nullptr;     // [num_tokens, k]
  const float* topk_weights = nullptr;   // [num_tokens, k]
  const half16* shared = nullptr;        // [num_tokens, hidden], or null
  half16* out = nullptr;                 // [num_tokens, hidden]
  int64_t num_tokens = 0;
  int hidden = 0;  // a multiple of 8
  int k = 0;       // 1 to 32
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kCombineThreads = 128;
inline constexpr int kCombineMaxSlots = 32;

struct CombineShared {
  int32_t rows[kCombineMaxSlots];  // by ascending expert id
  float weights[kCombineMaxSlots];
};

// The work of the block that has this token: the sum of `count` rows, row_of(i) with weights[i]. shared_row: [hidden], or null.
// Rounding: product and sum in FP32, each rounded; the shared expert last; BF16 once.
template <typename RowOf>
GPU_DEVICE void combine_rows(
    int count, const RowOf& row_of, const float* weights, const half16* shared_row, half16* out, int hidden) {
  constexpr int kLen = 8;
  for (int column = static_cast<int>(thread_idx().x) * kLen; column < hidden; column += kCombineThreads * kLen) {
    float sum[kLen] = {};
    for (int slot = 0; slot < count; ++slot) {
      const auto row = load_vector<kLen>(row_of(slot) + column);
      GPU_UNROLL
      for (int i = 0; i < kLen; ++i) {
        sum[i] = add(sum[i], multiply(to_float(row.at[i]), weights[slot]));
      }
    }
    Vector<half16, kLen> result;
    if (shared_row != nullptr) {
      const auto row = load_vector<kLen>(shared_row + column);
      GPU_UNROLL
      for (int i = 0; i < kLen; ++i) {
        sum[i] = add(sum[i], to_float(row.at[i]));
      }
    }
    GPU_UNROLL
    for (int i = 0; i < kLen; ++i) {
      result.at[i] = to_half16(sum[i]);
    }
    store_vector<kLen>(out + column, result);
  }
}

// Grid: one block a token. Shared memory: CombineShared. Rows 16-byte aligned. Order: ascending expert id, whatever the slots'.
GPU_KERNEL combine_kernel(CombineArguments arguments) {
  CombineShared& shared = *shared_memory_as<CombineShared>();
  const auto token = static_cast<int64_t>(block_idx().x);
  const int thread = static_cast<int>(thread_idx().x);
  if (thread < arguments.k) {
    const int32_t* const ids = arguments.topk_ids + token * arguments.k;
    int place = 0;  // ids of one token differ
    for (int slot = 0; slot < arguments.k; ++slot) {
      place += ids[slot] < ids[thread] ? 1 : 0;
    }
    shared.rows[place] = arguments.row_of_slot[token * arguments.k + thread];
    shared.weights[place] = arguments.topk_weights[token * arguments.k + thread];
  }
  sync_threads();
  const int64_t first = token * arguments.hidden;
  combine_rows(
      arguments.k,
      [&](int slot) { return arguments.expert_rows + static_cast<int64_t>(shared.rows[slot]) * arguments.hidden; },
      shared.weights,
      arguments.shared != nullptr ? arguments.shared + first : nullptr,
      arguments.out + first,
      arguments.hidden);
}

inline void combine(Stream stream, const CombineArguments& arguments) {
  require(arguments.hidden > 0 && arguments.hidden % 8 == 0, "combine: hidden has to be a multiple of 8");
  require(arguments.k >= 1 && arguments.k <= kCombineMaxSlots, "combine: 1 to 32 experts a token");
  if (arguments.num_tokens > 0) {
    launch(stream,
           {.name = "combine",
            .grid = {static_cast<unsigned>(arguments.num_tokens)},
            .block = {kCombineThreads},
            .shared_bytes = sizeof(CombineShared)},
           combine_kernel,
           arguments);
  }
}

}  // namespace gpu::DSV3_BACKEND
