// The first CUDA device, in programs built with nvcc.
#include "gpu/engine/cuda_backend.hpp"
#include "tools/device/open.hpp"

namespace tools {

std::string why_no_cuda() {
  return gpu::why_no_cuda_device();
}

std::unique_ptr<gpu::Backend> open_cuda(bool fp16) {
  return fp16 ? gpu::make_cuda_fp16_backend() : gpu::make_cuda_backend();
}

std::string cuda_name() {
  return gpu::cuda_device_name();
}

std::vector<double> time_on_cuda(gpu::Backend& device, const std::function<void()>& work, int num_repetitions) {
  return gpu::time_on_cuda(device, work, num_repetitions);
}

}  // namespace tools
