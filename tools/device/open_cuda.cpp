// The first CUDA device, in programs built with nvcc.
#include "gpu/engine/cuda_backend.hpp"
#include "tools/device/open.hpp"

namespace tools {

std::string why_no_cuda() {
  return gpu::why_no_cuda_device();
}

std::unique_ptr<gpu::Backend> open_cuda() {
  return gpu::make_cuda_backend();
}

}  // namespace tools
