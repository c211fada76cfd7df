// The portability layer's shared memory, vector accesses, atomics and asynchronous copies on the device.
#pragma once

#include <cstdint>

#include "gpu/portable/cuda/ptx_copy.cuh"
#include "gpu/portable/types.hpp"

namespace gpu::DSV3_BACKEND {

template <typename T>
GPU_DEVICE T* shared_memory_as() {
  extern __shared__ __align__(16) unsigned char dsv3_shared_memory[];
  return reinterpret_cast<T*>(dsv3_shared_memory);
}

// Rounded up here and not by the declaration: that would move the shared memory of every kernel of the translation unit.
inline constexpr int kTileSlackBytes = 1024;
template <typename T>
GPU_DEVICE T* shared_tiles_as() {
  auto* const start = shared_memory_as<unsigned char>();
  return reinterpret_cast<T*>(start + (kTileSlackBytes - shared_address(start) % kTileSlackBytes) % kTileSlackBytes);
}

template <int N, typename T>
GPU_DEVICE Vector<T, N> load_vector(const T* from) {
  static_assert(sizeof(Vector<T, N>) <= 16);
  return *reinterpret_cast<const Vector<T, N>*>(from);
}
template <int N, typename T>
GPU_DEVICE void store_vector(T* to, const Vector<T, N>& value) {
  *reinterpret_cast<Vector<T, N>*>(to) = value;
}

GPU_DEVICE int32_t atomic_add(int32_t* to, int32_t value) {
  return atomicAdd(to, value);
}
GPU_DEVICE void thread_fence() {
  __threadfence();
}
GPU_DEVICE void wait_for_earlier_grids() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

GPU_DEVICE void copy_async_16(void* to, const void* from, int valid_bytes = 16) {
  ptx_cp_async_cg_16(to, from, valid_bytes);
}
GPU_DEVICE void commit_copies() {
  ptx_cp_async_commit_group();
}
template <int N>
GPU_DEVICE void wait_copies() {
  ptx_cp_async_wait_group<N>();
}

}  // namespace gpu::DSV3_BACKEND
