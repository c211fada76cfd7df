// Numbers as the half16 of a back end's kernels, on the host.
#pragma once

#include "gpu/portable/types.hpp"
#include "model/dtype.hpp"

namespace gpu {

// To nearest, halfway to even; `half`: what half16 is, kBF16 or kF16.
inline half16 round_to_half(model::DType half, float x) {
  return {half == model::DType::kF16 ? emulated::to_fp16(x).bits : emulated::to_bf16(x).bits};
}

}  // namespace gpu
