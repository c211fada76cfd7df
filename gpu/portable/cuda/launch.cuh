// launch() on a device.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "gpu/portable/backend.hpp"
#include "gpu/portable/require.hpp"

namespace gpu::DSV3_BACKEND {

struct Stream {
  cudaStream_t handle = nullptr;
};

struct LaunchShape {
  const char* name = "";
  dim3 grid;
  dim3 block;
  int64_t shared_bytes = 0;
  bool early = false;
};

inline void check_call(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw DeviceError(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

// Throws DeviceError with CUDA's words when the device refuses the launch.
template <typename Arguments>
void launch(Stream stream, const LaunchShape& shape, void (*kernel)(Arguments), const Arguments& arguments) {
  constexpr int64_t kSharedBytesWithoutAsking = 48 << 10;
  if (shape.shared_bytes > kSharedBytesWithoutAsking) {
    check_call(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shape.shared_bytes)),
               shape.name);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream.handle;
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = shape.early ? 1 : 0;
  check_call(cudaLaunchKernelEx(&config, kernel, arguments), shape.name);
}

}  // namespace gpu::DSV3_BACKEND
