// What a kernel may use: include this and write the kernel once, in namespace gpu::DSV3_BACKEND. docs/gpu.md shows one.
//
//   thread_idx(), block_idx(), block_dim(), grid_dim()      who am I
//   sync_threads(), sync_warp(mask), shuffle..., ballot     meetings of threads
//   load_vector, store_vector                               aligned vector accesses
//   shared_memory_as<T>()                                   the block's dynamic shared memory, the only kind there is
//   atomic_add, thread_fence                                words between blocks
//   store_release_system, load_acquire_system, wait_for_flag  words between devices
//   copy_async, commit_copies, wait_copies<N>               cp.async
//   load_matrices, multiply_...                             tensor cores
//   Barrier, load_tile, multiply_warpgroup_...              mbarrier, TMA and wgmma: Hopper alone
//   launch(stream, shape, kernel, arguments)                on the host
#pragma once

#include "gpu/portable/backend.hpp"
#include "gpu/portable/types.hpp"

#if defined(__CUDACC__)
#include "gpu/portable/cuda/async.cuh"
#include "gpu/portable/cuda/launch.cuh"
#include "gpu/portable/cuda/memory.cuh"
#include "gpu/portable/cuda/mma.cuh"
#include "gpu/portable/cuda/peers.cuh"
#include "gpu/portable/cuda/threads.cuh"
#else
#include "gpu/emulation/kernel_async.hpp"
#include "gpu/emulation/kernel_launch.hpp"
#include "gpu/emulation/kernel_memory.hpp"
#include "gpu/emulation/kernel_mma.hpp"
#include "gpu/emulation/kernel_peers.hpp"
#include "gpu/emulation/kernel_threads.hpp"
#endif

namespace gpu::DSV3_BACKEND {

inline constexpr uint32_t kFullWarp = 0xFFFFFFFFU;
inline constexpr int kLanes = 32;

// The sum over the lanes of a warp, the same bits in each: (i, i + 16), (i, i + 8), ... as a butterfly.
GPU_DEVICE float warp_sum(float x) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x = x + shuffle_xor(kFullWarp, x, distance);
  }
  return x;
}

// The largest over groups of `group_len` neighbouring lanes, a power of two. NaN is passed over.
GPU_DEVICE float group_max(float x, int group_len) {
  for (int distance = group_len / 2; distance > 0; distance /= 2) {
    x = fmaxf(x, shuffle_xor(kFullWarp, x, distance));
  }
  return x;
}

// The sum over the threads of a block, the same bits in each: warps first, then their sums in ascending order of warps.
// scratch: [number of warps] in shared memory, free for other use after the next sync_threads().
GPU_DEVICE float block_sum(float x, float* scratch) {
  const int num_warps = static_cast<int>(block_dim().x) / kLanes;
  const float mine = warp_sum(x);
  if (thread_idx().x % kLanes == 0) {
    scratch[thread_idx().x / kLanes] = mine;
  }
  sync_threads();
  float sum = scratch[0];
  for (int warp = 1; warp < num_warps; ++warp) {
    sum = sum + scratch[warp];
  }
  return sum;
}

}  // namespace gpu::DSV3_BACKEND
