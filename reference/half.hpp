// Rounding to the 16-bit format of the rules (Rules::half): BF16, or FP16 under profile `fp16`.
#pragma once

#include <span>

#include "model/check.hpp"
#include "model/dtype.hpp"
#include "reference/numerics/bf16.hpp"
#include "reference/numerics/fp16.hpp"
#include "reference/simd/kernels.hpp"

namespace reference {

inline float round_to_half(model::DType half, float value) {
  return half == model::DType::kF16 ? round_to_fp16(value) : round_to_bf16(value);
}

// In place.
inline void round_all_to_half(model::DType half, std::span<float> values) {
  if (half == model::DType::kBF16) {
    simd::kernels().scale_to_bf16(values.data(), static_cast<int64_t>(values.size()), 1.0f);
    return;
  }
  CHECK(half == model::DType::kF16);
  for (float& value : values) {
    value = round_to_fp16(value);
  }
}

}  // namespace reference
