#include "gpu/engine/cuda_backend.cuh"

#include "gpu/engine/cuda_backend.hpp"

namespace gpu {

std::string why_no_cuda_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    return cudaGetErrorString(status);
  }
  return count == 0 ? "CUDA shows no device" : "";
}

int num_cuda_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::unique_ptr<Backend> make_cuda_backend(int device) {
  return std::make_unique<cuda::CudaBackend>(device);
}

std::string cuda_device_name() {
  cudaDeviceProp properties{};
  cuda::check_call(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return properties.name;
}

std::vector<double> time_on_cuda(Backend& backend, const std::function<void()>& work, int num_repetitions) {
  return dynamic_cast<cuda::CudaBackend&>(backend).time_us(work, num_repetitions);
}

}  // namespace gpu
