// From the rows of kv_a to the paged latent cache: RMSNorm of the latent, RoPE of the shared key, both written to the token's place,
// in BF16 or in the FP8 form of fp8_cache.cuh.
// Covers the ops kv_a_norm, k_rope and cache.L.latent (q_a_norm is rms_norm).
#pragma once

#include "gpu/kernels/fp8_cache.cuh"
#include "gpu/kernels/quantize_block.cuh"
#include "gpu/kernels/rotate.cuh"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct CacheLatentArguments {
  const half16* kv_a = nullptr;        // [num_tokens, kv_lora + rope]
  const half16* gain = nullptr;        // [kv_lora]
  const float* cos_sin = nullptr;      // [num_positions, rope / 2, 2]
  const int32_t* positions = nullptr;  // [num_tokens]: rows of cos_sin
  const int64_t* slots = nullptr;  // [num_tokens]: page * 64 + place in the page; negative: padding, nothing is written
  half16* cache = nullptr;         // [num_pages, 64, kv_lora + rope], or null for cache_fp8
  int64_t num_tokens = 0;
  int kv_lora = 0;  // a multiple of 8, at most 1024
  int rope = 0;     // a multiple of 8, at most 1024
  float epsilon = 0;
  unsigned char* cache_fp8 = nullptr;  // [num_pages, 64, fp8_cache_row_bytes()], or null for cache
  half16* normed = nullptr;            // [num_tokens, kv_lora]: the norm before it becomes FP8; or null
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kCacheLatentThreads = 128;

struct CacheLatentShared {
  float sums[kCacheLatentThreads / kLanes];
};

// Grid: one block a token. Shared memory: CacheLatentShared. Rows 16-byte aligned.
// Rounding: the norm as rms_norm, BF16 once; RoPE as rotate_vector. Order of the sum of squares: a thread's 8 elements ascending, then
// block_sum.
GPU_KERNEL cache_latent_kernel(CacheLatentArguments arguments) {
  CacheLatentShared& shared = *shared_memory_as<CacheLatentShared>();
  const auto token = static_cast<int64_t>(block_idx().x);
  const int64_t slot = arguments.slots[token];
  if (slot < 0) {
    return;
  }
  const int column = static_cast<int>(thread_idx().x) * kVectorLen;
  const int row_len = arguments.kv_lora + arguments.rope;
  const half16* const from = arguments.kv_a + token * row_len;
  const bool is_fp8 = arguments.cache_fp8 != nullptr;
  unsigned char* const fp8_row =
      is_fp8 ? arguments.cache_fp8 + slot * fp8_cache_row_bytes(arguments.kv_lora, arguments.rope) : nullptr;
  half16* const to = is_fp8 ? nullptr : arguments.cache + slot * row_len;
  half16* const rope_to =
      is_fp8 ? reinterpret_cast<half16*>(fp8_row + arguments.kv_lora + kFp8CacheScaleBytes) : to + arguments.kv_lora;
  Vector<half16, kVectorLen> latent{};
  float sum = 0;
  if (column < arguments.kv_lora) {
    latent = load_vector<kVectorLen>(from + column);
    GPU_UNROLL
    for (int i = 0; i < kVectorLen; ++i) {
      sum = add(sum, multiply(to_float(latent.at[i]), to_float(latent.at[i])));
    }
  }
  const float mean = divide(block_sum(sum, shared.sums), static_cast<float>(arguments.kv_lora));
  const float inverse_rms = divide(1.0f, square_root(add(mean, arguments.epsilon)));
  if (column < arguments.kv_lora) {
    const auto gain = load_vector<kVectorLen>(arguments.gain + column);
    GPU_UNROLL
    for (int i = 0; i < kVectorLen; ++i) {
      latent.at[i] = to_half16(multiply(multiply(to_float(latent.at[i]), inverse_rms), to_float(gain.at[i])));
    }
    if (!is_fp8) {
      store_vector<kVectorLen>(to + column, latent);
    }
    if (arguments.normed != nullptr) {
      store_vector<kVectorLen>(arguments.normed + token * arguments.kv_lora + column, latent);
    }
  }
  if (is_fp8) {
    store_fp8_latent(fp8_row, column, arguments.kv_lora, column < arguments.kv_lora, latent);
  }
  if (column < arguments.rope) {
    const int64_t position = arguments.positions[token];
    const auto key = load_vector<kVectorLen>(from + arguments.kv_lora + column);
    store_vector<kVectorLen>(rope_to + column,
                             rotate_vector(key, arguments.cos_sin + position * arguments.rope + column));
  }
}

inline void cache_latent(Stream stream, const CacheLatentArguments& arguments) {
  constexpr int kMaxLen = kCacheLatentThreads * kVectorLen;
  require(arguments.kv_lora > 0 && arguments.kv_lora % kVectorLen == 0 && arguments.kv_lora <= kMaxLen,
          "cache_latent: kv_lora has to be a multiple of 8 up to 1024");
  require(arguments.rope > 0 && arguments.rope % kVectorLen == 0 && arguments.rope <= kMaxLen,
          "cache_latent: rope has to be a multiple of 8 up to 1024");
  require((arguments.cache == nullptr) != (arguments.cache_fp8 == nullptr), "cache_latent: one of cache and cache_fp8");
  require(arguments.cache_fp8 == nullptr || has_fp8_cache(arguments.kv_lora, arguments.rope), kFp8CacheWidths);
  if (arguments.num_tokens > 0) {
    launch(stream,
           {.name = "cache_latent",
            .grid = {static_cast<unsigned>(arguments.num_tokens)},
            .block = {kCacheLatentThreads},
            .shared_bytes = sizeof(CacheLatentShared)},
           cache_latent_kernel,
           arguments);
  }
}

}  // namespace gpu::DSV3_BACKEND
