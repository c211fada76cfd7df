// Every kernel, compiled for the device: including a kernel and taking its launcher's address instantiates it.
#include "gpu/kernels/fp8_linear.cuh"
#include "gpu/kernels/rms_norm.cuh"

namespace gpu::DSV3_BACKEND {

struct Launchers {
  void (*fp8_linear)(Stream, const Fp8LinearArguments&);
  void (*rms_norm)(Stream, const RmsNormArguments&);
};

extern const Launchers kLaunchers;
const Launchers kLaunchers{.fp8_linear = fp8_linear, .rms_norm = rms_norm};

}  // namespace gpu::DSV3_BACKEND
