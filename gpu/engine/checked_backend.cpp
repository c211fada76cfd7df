// Compiled with -fsanitize=thread: the kernels report every access (gpu/emulation/access_hooks.cpp).
#include "gpu/engine/emulation_backend.hpp"

namespace gpu {

std::unique_ptr<Backend> make_checked_backend(const emulation::Options& options) {
  return std::make_unique<checked::EmulationBackend>(options);
}

}  // namespace gpu
