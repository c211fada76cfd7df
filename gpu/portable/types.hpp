// BF16, FP16, FP8 E4M3 and vectors of them, the same on device and host. Only named functions convert.
#pragma once

#include <cstdint>

#include "gpu/portable/backend.hpp"

namespace gpu {

struct bf16 {  // NOLINT(readability-identifier-naming): named like the other arithmetic types
  uint16_t bits;
};
struct fp16 {  // NOLINT(readability-identifier-naming)
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
