// What surrounds the absorbed attention: its arguments, the scheduler that finds the splits of each sequence on the device, and the
// combine that adds them in ascending order.
#pragma once

#include "gpu/kernels/attention_tiles.cuh"
#include "gpu/portable/kernel.hpp"

namespace gpu {

struct LatentAttentionArguments {
  const half16* q_latent = nullptr;      // [num_tokens, num_heads, kv_lora]
  const half16* q_rope = nullptr;        // [num_tokens, num_heads, rope]
  const half16* cache = nullptr;         // [num_pages, 64, kv_lora + rope], or null for cache_fp8
  const int32_t* block_table = nullptr;  // [num_sequences, max_pages]: read as far as the keys go
  const int32_t* num_keys = nullptr;  // [num_sequences]: cached and new; 0: padding, its output is 0 and its lse -inf
  const int32_t* first_token = nullptr;  // [num_sequences + 1]: new tokens of a sequence, the last ones of its keys
  int32_t* first_split = nullptr;        // [num_sequences + 1]: written by the scheduler, as is split_sequence
  int32_t* split_sequence = nullptr;     // [max_splits]: the sequence of each split, -1 beyond the last
  float* partial_o = nullptr;            // [max_splits, max_new * num_heads, kv_lora]: not divided by the sum
  float* partial_stats = nullptr;        // [max_splits, max_new * num_heads, 2]: largest score, sum
  half16* o_latent = nullptr;            // [num_tokens, num_heads, kv_lora]
  float* lse = nullptr;                  // [num_tokens, num_heads], natural logarithm, or null
  int num_sequences = 0;
  int max_pages = 0;        // of a sequence
  int max_splits = 0;       // at least the sum over sequences of ceil(keys / (64 * pages_per_split))
  int max_new = 0;          // tokens of a sequence, at most
  int pages_per_split = 4;  // the same for all calls whose bits are compared
  int num_heads = 0;
  int kv_lora = 0;  // both multiples of 8, see has_latent_attention()
  int rope = 0;
  float scale = 0;
  const unsigned char* cache_fp8 = nullptr;  // [num_pages, 64, fp8_cache_row_bytes()], or null for cache
};

// Which widths the kernel has, for those who load a model; the words that refuse the others.
inline constexpr const char* kLatentAttentionWidths =
    "latent_attention: kv_lora_rank and qk_rope_head_dim have to be multiples of 8, up to 256 and 128, or up to 512 "
    "and 64";
inline bool has_latent_attention(int64_t kv_lora, int64_t rope) {
  return kv_lora > 0 && rope > 0 && kv_lora % 8 == 0 && rope % 8 == 0 &&
         ((kv_lora <= 256 && rope <= 128) || (kv_lora <= 512 && rope <= 64));
}

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kPageLen = 64;
inline constexpr int kCombineSplitsThreads = 128;

// Grid: one block of one warp. No shared memory.
GPU_KERNEL schedule_splits_kernel(LatentAttentionArguments arguments) {
  const int lane = static_cast<int>(thread_idx().x);
  const int keys_per_split = arguments.pages_per_split * kPageLen;
  int base = 0;
  for (int first = 0; first < arguments.num_sequences; first += kLanes) {
    const int sequence = first + lane;
    const bool exists = sequence < arguments.num_sequences;
    const int mine = exists ? (arguments.num_keys[sequence] + keys_per_split - 1) / keys_per_split : 0;
    int up_to_here = mine;
    for (int distance = 1; distance < kLanes; distance *= 2) {
      const int before = shuffle_from(kFullWarp, up_to_here, lane >= distance ? lane - distance : lane);
      up_to_here += lane >= distance ? before : 0;
    }
    if (exists) {
      const int first_split = base + up_to_here - mine;
      arguments.first_split[sequence] = first_split;
      for (int i = first_split; i < first_split + mine && i < arguments.max_splits; ++i) {
        arguments.split_sequence[i] = sequence;
      }
    }
    base += shuffle_from(kFullWarp, up_to_here, kLanes - 1);
  }
  if (lane == 0) {
    arguments.first_split[arguments.num_sequences] = base;
  }
  for (int i = base + lane; i < arguments.max_splits; i += kLanes) {
    arguments.split_sequence[i] = -1;
  }
}

// Grid: (max_new * num_heads, num_sequences). No shared memory.
// Rounding: FP32; one division, BF16 once. Order: splits ascending, weighted by exp(largest - largest of all).
GPU_KERNEL combine_splits_kernel(LatentAttentionArguments arguments) {
  const auto row = static_cast<int64_t>(block_idx().x);
  const auto sequence = static_cast<int>(block_idx().y);
  const int64_t first_token = arguments.first_token[sequence];
  if (row >= (arguments.first_token[sequence + 1] - first_token) * arguments.num_heads) {
    return;
  }
  const int begin = arguments.first_split[sequence];
  const int end = arguments.first_split[sequence + 1];
  if (end - begin == 1) {
    return;  // the attention kernel has written the result
  }
  const int64_t rows_per_split = static_cast<int64_t>(arguments.max_new) * arguments.num_heads;
  float largest = -INFINITY;
  for (int split = begin; split < end; ++split) {
    largest = fmaxf(largest, arguments.partial_stats[(split * rows_per_split + row) * 2]);
  }
  float sum = 0;
  for (int split = begin; split < end; ++split) {
    const float* const stats = arguments.partial_stats + (split * rows_per_split + row) * 2;
    sum = add(sum, multiply(weight_of(stats[0], largest), stats[1]));
  }
  const int64_t out_row = first_token * arguments.num_heads + row;
  if (arguments.lse != nullptr && thread_idx().x == 0) {
    arguments.lse[out_row] = sum == 0 ? -INFINITY : add(largest, logf(sum));
  }
  for (int column = static_cast<int>(thread_idx().x); column < arguments.kv_lora; column += kCombineSplitsThreads) {
    float value = 0;
    for (int split = begin; split < end; ++split) {
      const int64_t at = split * rows_per_split + row;
      const float weight = weight_of(arguments.partial_stats[at * 2], largest);
      value = add(value, multiply(weight, arguments.partial_o[at * arguments.kv_lora + column]));
    }
    arguments.o_latent[out_row * arguments.kv_lora + column] = to_half16(sum == 0 ? 0.0f : divide(value, sum));
  }
}

}  // namespace gpu::DSV3_BACKEND
