// The portability layer's words between devices on the device.
#pragma once

#include <cstdint>

#include "gpu/portable/cuda/ptx_peers.cuh"
#include "gpu/portable/cuda/threads.cuh"

namespace gpu::DSV3_BACKEND {

GPU_DEVICE void store_release_system(uint32_t* to, uint32_t value) {
  ptx_st_release_sys(to, value);
}
GPU_DEVICE uint32_t load_acquire_system(const uint32_t* from) {
  return ptx_ld_acquire_sys(from);
}

// A peer that died would otherwise hold this device for ever.
inline constexpr uint64_t kPeerTimeoutNs = 60'000'000'000;
GPU_DEVICE void wait_for_flag(const uint32_t* flag, uint32_t epoch) {
  const uint64_t start_ns = ptx_mov_globaltimer();
  while (static_cast<int32_t>(load_acquire_system(flag) - epoch) < 0) {
    spin_hint();
    if (ptx_mov_globaltimer() - start_ns > kPeerTimeoutNs) {
      __trap();
    }
  }
}

}  // namespace gpu::DSV3_BACKEND
