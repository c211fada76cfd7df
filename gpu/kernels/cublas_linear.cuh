// FP8 linears with DeepSeek-V3's block scales by cuBLASLt, which has them on Hopper alone: an implementation that shares nothing with our
// kernels, to hold them against. The library is looked for when an object is made; nothing else needs it.
#pragma once

#include <memory>
#include <string>

#include "gpu/portable/cuda/launch.cuh"

namespace gpu {

struct Fp8LinearSm90Arguments;

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

class CublasLinear {
 public:
  // Throws DeviceError when the library cannot be loaded, or is without what it needs, or does not start, as without a device.
  CublasLinear();
  ~CublasLinear();
  CublasLinear(const CublasLinear&) = delete;
  CublasLinear& operator=(const CublasLinear&) = delete;

  // What fp8_linear_sm90 computes for one group. Order of sums: the library's. Throws ArgumentError for a shape or layout that it does not
  // take: num_tokens and out_dim are multiples of 4, in_dim of 512, x_scale_stride is num_tokens. Throws DeviceError when it has no
  // algorithm, or refuses.
  void run(Stream stream, const Fp8LinearSm90Arguments& arguments) const;

  [[nodiscard]] std::string version() const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace gpu::DSV3_BACKEND
