#include "gpu/engine/emulation_backend.hpp"

namespace gpu {

std::unique_ptr<Backend> make_emulated_backend(const emulation::Options& options, bool has_wgmma) {
  return std::make_unique<emulated::EmulationBackend>(options, has_wgmma);
}

}  // namespace gpu
