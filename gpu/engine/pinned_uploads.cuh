// Copies from the host to a device by way of pinned memory, so that they neither wait for each other nor keep the source: while one half is
// on its way, the other is filled.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "gpu/engine/cuda_handles.cuh"

namespace gpu::DSV3_BACKEND {

class PinnedUploads {
 public:
  // Queues the copy on the stream; `from` is free again when this returns.
  void upload(cudaStream_t stream, void* to, const void* from, int64_t num_bytes) {
    for (int64_t done = 0; done < num_bytes;) {
      if (filled_bytes_ == kHalfBytes) {
        change_half(stream);
      }
      const int64_t part = std::min(num_bytes - done, kHalfBytes - filled_bytes_);
      auto* const staged = static_cast<std::byte*>(halves_[current_].bytes.get()) + filled_bytes_;
      std::memcpy(staged, static_cast<const std::byte*>(from) + done, static_cast<size_t>(part));
      check_call(
          cudaMemcpyAsync(
              static_cast<std::byte*>(to) + done, staged, static_cast<size_t>(part), cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync to the device");
      filled_bytes_ += part;
      done += part;
    }
  }

 private:
  static constexpr int64_t kHalfBytes = int64_t{16} << 20;
  struct Half {
    PinnedBytes bytes = allocate_pinned(kHalfBytes);
    OwnedEvent read = create_event();  // everything in it has been copied; one that was never recorded is no wait
  };

  void change_half(cudaStream_t stream) {
    check_call(cudaEventRecord(halves_[current_].read.get(), stream), "cudaEventRecord");
    current_ = 1 - current_;
    check_call(cudaEventSynchronize(halves_[current_].read.get()), "cudaEventSynchronize");
    filled_bytes_ = 0;
  }

  std::array<Half, 2> halves_;
  size_t current_ = 0;
  int64_t filled_bytes_ = 0;
};

}  // namespace gpu::DSV3_BACKEND
