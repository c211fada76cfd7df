// Quantising 1x128 blocks of activations: docs/numerics.md section 3, rule of profile v32.
#pragma once

#include "gpu/portable/kernel.hpp"

namespace gpu {

enum class ScaleFormat : int { kFp32, kUe8m0 };  // kUe8m0: scales are powers of two, still stored as FP32

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kVectorLen = 8;  // BF16 elements in 16 bytes: what one thread holds of a block
inline constexpr int kLanesPerBlock = kScaleBlockLen / kVectorLen;

// x positive and normal. By bits: exponent, plus one when there is a fraction.
GPU_DEVICE float round_up_to_power_of_two(float x) {
  const uint32_t bits = bits_of(x);
  return float_of((bits & 0x7F800000U) + ((bits & 0x7FFFFFU) != 0 ? 0x800000U : 0U));
}

// Scale of a block whose largest magnitude is amax.
GPU_DEVICE float scale_of_block(float amax, ScaleFormat format) {
  constexpr float kSmallestAmax = 1e-4f;  // keeps a zero block from 0 / 0
  const float scale = multiply(fmaxf(amax, kSmallestAmax), 1.0f / kLargestE4m3);
  return format == ScaleFormat::kUe8m0 ? round_up_to_power_of_two(scale) : scale;
}

// Quantises one 128-block that kLanesPerBlock neighbouring lanes hold, 8 elements each. All lanes of the warp call; each gets the
// scale of its block. A lane beyond the end of the row passes zeros.
// NaN in a block: that element's code is NaN; the others keep their scale.
GPU_DEVICE float quantize_block(const Vector<half16, kVectorLen>& x,
                                ScaleFormat format,
                                Vector<fp8_e4m3, kVectorLen>& codes) {
  float amax = 0;
  GPU_UNROLL
  for (int i = 0; i < kVectorLen; ++i) {
    amax = fmaxf(amax, fabsf(to_float(x.at[i])));
  }
  const float scale = scale_of_block(group_max(amax, kLanesPerBlock), format);
  GPU_UNROLL
  for (int i = 0; i < kVectorLen; ++i) {
    codes.at[i] = to_fp8_e4m3(divide(to_float(x.at[i]), scale));
  }
  return scale;
}

}  // namespace gpu::DSV3_BACKEND
