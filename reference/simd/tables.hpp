// The tables, each defined in a file of its own that is compiled for its level. Internal to kernels.cpp.
#pragma once

#include "reference/simd/kernels.hpp"

namespace reference::simd {

extern const Kernels kBaselineKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

}  // namespace reference::simd
