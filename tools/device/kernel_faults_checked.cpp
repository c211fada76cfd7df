// Compiled with -fsanitize=thread: the kernels report every access (gpu/emulation/access_hooks.cpp).
#include "tools/device/faulty_backend.hpp"

namespace tools {

std::unique_ptr<gpu::Backend> make_checked_faulty_backend(const gpu::emulation::Options& options,
                                                          const KernelLauncher& mutant) {
  return std::make_unique<checked::FaultyBackend>(options, mutant);
}

}  // namespace tools
