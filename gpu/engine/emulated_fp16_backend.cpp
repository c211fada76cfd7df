// Compiled with -DDSV3_FP16=1: the kernels' 16-bit numbers are FP16.
#include "gpu/engine/emulation_backend.hpp"

namespace gpu {

std::unique_ptr<Backend> make_emulated_fp16_backend(const emulation::Options& options, bool has_wgmma) {
  return std::make_unique<emulated_fp16::EmulationBackend>(options, has_wgmma);
}

}  // namespace gpu
