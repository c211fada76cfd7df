// BF16, FP16, FP8 E4M3 and vectors of them, the same on device and host. Only named functions convert.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpu/portable/backend.hpp"

namespace gpu {

struct bf16 {  // NOLINT(readability-identifier-naming): named like the other arithmetic types
  uint16_t bits;
};
struct fp16 {  // NOLINT(readability-identifier-naming)
  uint16_t bits;
};
// A 16-bit number of a kernel: BF16, or FP16 in kernels compiled for that (DSV3_FP16 of backend.hpp), where it takes the place of
// everything that they call BF16. One type for both, so that both have the same arguments.
struct half16 {  // NOLINT(readability-identifier-naming)
  uint16_t bits;
};
struct fp8_e4m3 {  // NOLINT(readability-identifier-naming)
  uint8_t bits;
};

inline constexpr float kLargestE4m3 = 448.0f;
inline constexpr int kScaleBlockLen =
    128;  // elements of an activation, and rows and columns of a weight, that share a scale

// N elements that are loaded and stored at once; aligned to their size.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T at[N];
};

}  // namespace gpu

#if defined(__CUDACC__)
#include "gpu/portable/cuda/convert.cuh"
#else
#include "gpu/emulation/convert.hpp"
#endif

namespace gpu::DSV3_BACKEND {

GPU_DEVICE float to_float(half16 x) {
  return to_float(std::conditional_t<kIsFp16, fp16, bf16>{x.bits});
}

GPU_DEVICE half16 to_half16(float x) {
  if constexpr (kIsFp16) {
    return {to_fp16(x).bits};
  } else {
    return {to_bf16(x).bits};
  }
}

}  // namespace gpu::DSV3_BACKEND
