// The routed experts' outputs, weighted and summed, plus the shared expert. Covers the ops moe.routed and ffn of a MoE layer.
#pragma once

#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct CombineArguments {
  const bf16* expert_rows = nullptr;     // [num rows, hidden]: what the experts gave, in any order
  const int32_t* row_of_slot = nullptr;  // [num_tokens, k]: where the output of that slot lies
  const int32_t* topk_ids = nullptr;     // [num_tokens, k]
  const float* topk_weights = nullptr;   // [num_tokens, k]
  const bf16* shared = nullptr;          // [num_tokens, hidden], or null
  bf16* out = nullptr;                   // [num_tokens, hidden]
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

// Grid: one block a token. Shared memory: CombineShared. Rows 16-byte aligned.
// Rounding: product and sum in FP32, each rounded; the shared expert last; BF16 once. Order: ascending expert id, whatever the slots'.
GPU_KERNEL combine_kernel(CombineArguments arguments) {
  constexpr int kLen = 8;
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
  for (int column = thread * kLen; column < arguments.hidden; column += kCombineThreads * kLen) {
    float sum[kLen] = {};
    for (int slot = 0; slot < arguments.k; ++slot) {
      const auto row = load_vector<kLen>(arguments.expert_rows +
                                         static_cast<int64_t>(shared.rows[slot]) * arguments.hidden + column);
      GPU_UNROLL
      for (int i = 0; i < kLen; ++i) {
        sum[i] = add(sum[i], multiply(to_float(row.at[i]), shared.weights[slot]));
      }
    }
    Vector<bf16, kLen> result;
    if (arguments.shared != nullptr) {
      const auto row = load_vector<kLen>(arguments.shared + token * arguments.hidden + column);
      GPU_UNROLL
      for (int i = 0; i < kLen; ++i) {
        sum[i] = add(sum[i], to_float(row.at[i]));
      }
    }
    GPU_UNROLL
    for (int i = 0; i < kLen; ++i) {
      result.at[i] = to_bf16(sum[i]);
    }
    store_vector<kLen>(arguments.out + token * arguments.hidden + column, result);
  }
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
