// A row of the latent cache in FP8: kv_lora codes, 16 bytes of FP32 scales, one for 128 values, then the rope key in BF16. 656 bytes for
// DeepSeek-V3, as FlashMLA has it; narrower latents leave the last scales unused, so that every part starts at 16 bytes.
#pragma once

#include "gpu/kernels/quantize_block.cuh"
#include "gpu/portable/kernel.hpp"

namespace gpu {

inline constexpr int kFp8CacheScaleBytes = 16;

// kv_lora has to be a multiple of 128 up to 512, rope a multiple of 8.
GPU_BOTH constexpr bool has_fp8_cache(int64_t kv_lora, int64_t rope) {
  return kv_lora > 0 && kv_lora % kScaleBlockLen == 0 && kv_lora <= 512 && rope > 0 && rope % 8 == 0;
}
inline constexpr const char* kFp8CacheWidths =
    "the FP8 cache: kv_lora_rank has to be a multiple of 128 up to 512, qk_rope_head_dim a multiple of 8";
GPU_BOTH constexpr int fp8_cache_row_bytes(int kv_lora, int rope) {
  return kv_lora + kFp8CacheScaleBytes + 2 * rope;
}

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

// One value as attention sees it. Rounding: the product in FP32, BF16 once; exact but for scales near the ends of BF16's range.
GPU_DEVICE half16 from_fp8_cache(fp8_e4m3 code, float scale) {
  return to_half16(multiply(to_float(code), scale));
}

// Stores 8 values of a row's latent; kLanesPerBlock neighbouring lanes hold a 128-block, and all lanes of the warp call.
// Rounding: scale 2^ceil(log2(max(amax / 448, 1e-4))), code E4M3(x / scale): the reference's rule kFp8.
GPU_DEVICE void store_fp8_latent(
    unsigned char* row, int column, int kv_lora, bool is_inside, const Vector<half16, kVectorLen>& x) {
  float amax = 0;
  GPU_UNROLL
  for (int i = 0; i < kVectorLen; ++i) {
    amax = fmaxf(amax, fabsf(to_float(x.at[i])));
  }
  constexpr float kSmallestScale = 1e-4f;
  const float scale =
      round_up_to_power_of_two(fmaxf(divide(group_max(amax, kLanesPerBlock), kLargestE4m3), kSmallestScale));
  if (!is_inside) {
    return;
  }
  Vector<fp8_e4m3, kVectorLen> codes;
  GPU_UNROLL
  for (int i = 0; i < kVectorLen; ++i) {
    codes.at[i] = to_fp8_e4m3(divide(to_float(x.at[i]), scale));
  }
  store_vector<kVectorLen>(reinterpret_cast<fp8_e4m3*>(row) + column, codes);
  if (column % kScaleBlockLen == 0) {
    reinterpret_cast<float*>(row + kv_lora)[column / kScaleBlockLen] = scale;
  }
}

// 8 values of a row's latent.
GPU_DEVICE Vector<half16, kVectorLen> load_fp8_latent(const unsigned char* row, int column, int kv_lora) {
  const auto codes = load_vector<kVectorLen>(reinterpret_cast<const fp8_e4m3*>(row) + column);
  const float scale = reinterpret_cast<const float*>(row + kv_lora)[column / kScaleBlockLen];
  Vector<half16, kVectorLen> values;
  GPU_UNROLL
  for (int i = 0; i < kVectorLen; ++i) {
    values.at[i] = from_fp8_cache(codes.at[i], scale);
  }
  return values;
}

}  // namespace gpu::DSV3_BACKEND
