// cp.async and what goes with it, one PTX instruction each.
#pragma once

#include <cstdint>

#include "gpu/portable/backend.hpp"

namespace gpu::DSV3_BACKEND {

GPU_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes past L1; of the source only valid_bytes are read, the rest of the destination becomes 0.
GPU_DEVICE void ptx_cp_async_cg_16(void* to, const void* from, int valid_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid_bytes)
               : "memory");
}
GPU_DEVICE void ptx_cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
GPU_DEVICE void ptx_cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace gpu::DSV3_BACKEND
