// Compiled with -DDSV3_FP16=1: the kernels' 16-bit numbers are FP16.
#include "gpu/engine/cuda_backend.cuh"
#include "gpu/engine/cuda_backend.hpp"

namespace gpu {

std::unique_ptr<Backend> make_cuda_fp16_backend(int device) {
  return std::make_unique<cuda_fp16::CudaBackend>(device);
}

}  // namespace gpu
