#include "reference/simd/kernels.hpp"

#include <atomic>

#include "model/check.hpp"
#include "reference/simd/tables.hpp"

namespace reference::simd {
namespace {

const Kernels* find(Level level) {
  for (const Level supported : supported_levels()) {
    if (supported == level) {
      switch (level) {
        case Level::kBaseline: return &kBaselineKernels;
#ifdef DSV3_SIMD_X86
        case Level::kAvx2: return &kAvx2Kernels;
        case Level::kAvx512: return &kAvx512Kernels;
#endif
        default: break;
      }
    }
  }
  model::throw_input_error("this machine has no {} instructions that the program could use", level_name(level));
}

std::atomic<const Kernels*>& in_use() {
  static std::atomic<const Kernels*> table{find(supported_levels().back())};
  return table;
}

}  // namespace

const Kernels& kernels() {
  return *in_use().load(std::memory_order_relaxed);
}

const Kernels& kernels_of(Level level) {
  return *find(level);
}

void use_level(Level level) {
  in_use().store(find(level));
}

}  // namespace reference::simd
