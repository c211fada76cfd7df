#include "reference/tensor_core/step_block.hpp"

namespace reference::tensor_core {

const StepKernels& step_kernels(simd::Level level) {
  switch (level) {
#ifdef DSV3_SIMD_X86
    case simd::Level::kAvx2: return kAvx2Steps;
    case simd::Level::kAvx512: return kAvx512Steps;
#endif
    default: return kBaselineSteps;
  }
}

}  // namespace reference::tensor_core
