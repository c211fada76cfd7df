// From the paged cache to what kv_b and the expanded attention read: rows of latents one after another, as BF16 or quantised, and
// the rope keys beside them. Covers attn.kv_b's x_fp8 and x_scale.
#pragma once

#include "gpu/kernels/fp8_cache.cuh"
#include "gpu/kernels/quantize_block.cuh"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct GatherLatentArguments {
  const half16* cache = nullptr;   // [num_pages, 64, kv_lora + rope], or null for cache_fp8
  const int64_t* slots = nullptr;  // [num_rows]: page * 64 + place in the page
  half16* latent = nullptr;        // [num_rows, kv_lora], or null
  half16* k_rope = nullptr;        // [num_rows, rope]
  fp8_e4m3* codes = nullptr;       // [num_rows, kv_lora], or null: no quantiser
  float* scales = nullptr;         // [ceil(kv_lora / 128), scale_stride]: row-minor
  int64_t num_rows = 0;
  int64_t scale_stride = 0;  // at least num_rows
  int kv_lora = 0;           // a multiple of 8, at most 1024
  int rope = 0;              // a multiple of 8, at most 1024
  ScaleFormat scale_format = ScaleFormat::kFp32;
  const unsigned char* cache_fp8 = nullptr;  // [num_pages, 64, fp8_cache_row_bytes()], or null for cache
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kGatherThreads = 128;

// Grid: one block a row. No shared memory. Rows 16-byte aligned.
GPU_KERNEL gather_latent_kernel(GatherLatentArguments arguments) {
  const auto row = static_cast<int64_t>(block_idx().x);
  const int column = static_cast<int>(thread_idx().x) * kVectorLen;
  const int64_t slot = arguments.slots[row];
  const bool is_fp8 = arguments.cache_fp8 != nullptr;
  const half16* const from = is_fp8 ? nullptr : arguments.cache + slot * (arguments.kv_lora + arguments.rope);
  const unsigned char* const fp8_row =
      is_fp8 ? arguments.cache_fp8 + slot * fp8_cache_row_bytes(arguments.kv_lora, arguments.rope) : nullptr;
  const half16* const rope = is_fp8 ? reinterpret_cast<const half16*>(fp8_row + arguments.kv_lora + kFp8CacheScaleBytes)
                                    : from + arguments.kv_lora;
  const bool is_inside = column < arguments.kv_lora;
  Vector<half16, kVectorLen> latent{};
  if (is_inside) {
    latent = is_fp8 ? load_fp8_latent(fp8_row, column, arguments.kv_lora) : load_vector<kVectorLen>(from + column);
    if (arguments.latent != nullptr) {
      store_vector<kVectorLen>(arguments.latent + row * arguments.kv_lora + column, latent);
    }
  }
  if (column < arguments.rope) {
    store_vector<kVectorLen>(arguments.k_rope + row * arguments.rope + column, load_vector<kVectorLen>(rope + column));
  }
  if (arguments.codes != nullptr) {
    Vector<fp8_e4m3, kVectorLen> codes;
    const float scale = quantize_block(latent, arguments.scale_format, codes);
    if (is_inside) {
      store_vector<kVectorLen>(arguments.codes + row * arguments.kv_lora + column, codes);
      if (column % kScaleBlockLen == 0) {
        arguments.scales[column / kScaleBlockLen * arguments.scale_stride + row] = scale;
      }
    }
  }
}

inline void gather_latent(Stream stream, const GatherLatentArguments& arguments) {
  constexpr int kMaxLen = kGatherThreads * kVectorLen;
  require(arguments.kv_lora > 0 && arguments.kv_lora % kVectorLen == 0 && arguments.kv_lora <= kMaxLen,
          "gather_latent: kv_lora has to be a multiple of 8 up to 1024");
  require(arguments.rope > 0 && arguments.rope % kVectorLen == 0 && arguments.rope <= kMaxLen,
          "gather_latent: rope has to be a multiple of 8 up to 1024");
  require(arguments.codes == nullptr || arguments.scale_stride >= arguments.num_rows,
          "gather_latent: scale_stride is at least num_rows");
  require((arguments.cache == nullptr) != (arguments.cache_fp8 == nullptr),
          "gather_latent: one of cache and cache_fp8");
  require(arguments.cache_fp8 == nullptr || has_fp8_cache(arguments.kv_lora, arguments.rope), kFp8CacheWidths);
  if (arguments.num_rows > 0) {
    launch(stream,
           {.name = "gather_latent", .grid = {static_cast<unsigned>(arguments.num_rows)}, .block = {kGatherThreads}},
           gather_latent_kernel,
           arguments);
  }
}

}  // namespace gpu::DSV3_BACKEND
