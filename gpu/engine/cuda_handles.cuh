// CUDA's objects as owners: what they hold is given back, without a word about errors, when they end.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "gpu/portable/cuda/launch.cuh"

namespace gpu::DSV3_BACKEND {

// A handle that `release` gives back. Movable, so that they can lie in vectors.
template <typename Handle, cudaError_t (*release)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  ~Owned() {
    if (handle_ != nullptr) {
      release(handle_);
    }
  }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  [[nodiscard]] Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using DeviceBytes = Owned<void*, cudaFree>;
using PinnedBytes = Owned<void*, cudaFreeHost>;
using OwnedStream = Owned<cudaStream_t, cudaStreamDestroy>;
using OwnedEvent = Owned<cudaEvent_t, cudaEventDestroy>;
using OwnedGraph = Owned<cudaGraph_t, cudaGraphDestroy>;
using ExecutableGraph = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

inline DeviceBytes allocate_device(int64_t num_bytes) {
  void* start = nullptr;
  check_call(cudaMalloc(&start, static_cast<size_t>(num_bytes)), "cudaMalloc");
  return DeviceBytes(start);
}
inline PinnedBytes allocate_pinned(int64_t num_bytes) {
  void* start = nullptr;
  check_call(cudaMallocHost(&start, static_cast<size_t>(num_bytes)), "cudaMallocHost");
  return PinnedBytes(start);
}
inline OwnedStream create_stream() {
  cudaStream_t stream = nullptr;
  check_call(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return OwnedStream(stream);
}
// `flags`: cudaEventDefault for one that takes the time.
inline OwnedEvent create_event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  check_call(cudaEventCreateWithFlags(&event, flags), "cudaEventCreate");
  return OwnedEvent(event);
}

}  // namespace gpu::DSV3_BACKEND
