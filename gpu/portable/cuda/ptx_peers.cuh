// Loads and stores that order accesses of several devices, one PTX instruction each, and the clock that bounds a wait.
#pragma once

#include <cstdint>

#include "gpu/portable/backend.hpp"

namespace gpu::DSV3_BACKEND {

GPU_DEVICE void ptx_st_release_sys(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
GPU_DEVICE uint32_t ptx_ld_acquire_sys(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
// Nanoseconds.
GPU_DEVICE uint64_t ptx_mov_globaltimer() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

}  // namespace gpu::DSV3_BACKEND
