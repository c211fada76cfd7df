// The engine's back end on a CUDA device. Built with DSV3_CUDA alone, and linked by whoever opens devices (tools/device); free of CUDA's
// headers, so that any compiler can include it. Nothing of it has run on a GPU yet.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/engine/backend.hpp"

namespace gpu {

// Why there is no CUDA device that this program could use, in CUDA's words; empty: there is one.
std::string why_no_cuda_device();

// How many devices CUDA shows (CUDA_VISIBLE_DEVICES chooses); 0 without a driver.
int num_cuda_devices();

// One of them, which becomes the calling thread's. One stream; uploads go through pinned memory. Throws DeviceError with CUDA's words
// here and in every call; what a kernel did wrong appears at the next call that waits.
std::unique_ptr<Backend> make_cuda_backend(int device = 0);
// The same with kernels that compute in FP16 where those compute in BF16.
std::unique_ptr<Backend> make_cuda_fp16_backend(int device = 0);

// As CUDA names the first device. Throws DeviceError.
std::string cuda_device_name();

// Microseconds of what `work` launches on `backend`, one of make_cuda_backend(): captured once, then replayed as a graph
// `num_repetitions` times, each between two events and behind a fill of twice the L2. Throws DeviceError.
std::vector<double> time_on_cuda(Backend& backend, const std::function<void()>& work, int num_repetitions);

}  // namespace gpu
