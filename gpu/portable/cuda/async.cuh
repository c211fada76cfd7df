// The portability layer's barriers, copies of tiles and products of warpgroups on the device. Needs sm_90a; elsewhere these functions
// stop the kernel.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/portable/cuda/launch.cuh"
#include "gpu/portable/cuda/ptx_async.cuh"

namespace gpu::DSV3_BACKEND {

using TensorMap = CUtensorMap;

// Throws DeviceError when the driver has no such function or refuses the map.
inline TensorMap make_tensor_map(
    const void* start, int64_t num_rows, int64_t row_bytes, int64_t row_stride_bytes, int box_rows) {
  constexpr unsigned kVersion = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check_call(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kVersion, cudaEnableDefault, &found),
             "cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess) {
    throw DeviceError("cuTensorMapEncodeTiled: the driver does not have it");
  }
  TensorMap map;
  const cuuint64_t lengths[] = {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(num_rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_stride_bytes)};
  const cuuint32_t box[] = {128, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult status =
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(&map,
                                                                    CU_TENSOR_MAP_DATA_TYPE_UINT8,
                                                                    2,
                                                                    const_cast<void*>(start),
                                                                    lengths,
                                                                    strides,
                                                                    box,
                                                                    steps,
                                                                    CU_TENSOR_MAP_INTERLEAVE_NONE,
                                                                    CU_TENSOR_MAP_SWIZZLE_128B,
                                                                    CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                                                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw DeviceError("cuTensorMapEncodeTiled refuses the map");
  }
  return map;
}

struct Barrier {
  uint64_t word;
};

GPU_DEVICE void init_barrier(Barrier& barrier, int num_arrivals) {
  ptx_mbarrier_init(&barrier.word, num_arrivals);
}
GPU_DEVICE void fence_barrier_init() {
  ptx_fence_mbarrier_init();
}
GPU_DEVICE void arrive(Barrier& barrier) {
  ptx_mbarrier_arrive(&barrier.word);
}
GPU_DEVICE void arrive_and_expect(Barrier& barrier, int num_bytes) {
  ptx_mbarrier_arrive_expect_tx(&barrier.word, num_bytes);
}
GPU_DEVICE void wait(Barrier& barrier, int parity) {
  while (!ptx_mbarrier_try_wait_parity(&barrier.word, parity)) {
  }
}

GPU_DEVICE void load_tile(void* to, const TensorMap& map, int64_t byte, int64_t row, Barrier& barrier) {
  ptx_cp_async_bulk_tensor_2d(to, &map, static_cast<int>(byte), static_cast<int>(row), &barrier.word);
}
GPU_DEVICE void fence_async() {
  ptx_fence_proxy_async();
}

GPU_DEVICE void fence_products() {
  ptx_wgmma_fence();
}
// Four steps of 32 codes. A step lies 32 bytes further in each row: the swizzle is of addresses, so the descriptor's start moves by 32.
template <int kColumns>
GPU_DEVICE void multiply_warpgroup_e4m3(float (&c)[kColumns / 2], const void* a, const void* b, bool adds) {
  static_assert(kColumns == 128, "the one instruction shape that a kernel uses");
  const uint64_t a_tile = tile_descriptor(a);
  const uint64_t b_tile = tile_descriptor(b);
  GPU_UNROLL
  for (int step = 0; step < 4; ++step) {
    ptx_wgmma_m64n128k32_e4m3(c, a_tile + 2 * step, b_tile + 2 * step, adds || step > 0);
  }
}
GPU_DEVICE void commit_products() {
  ptx_wgmma_commit_group();
}
template <int N, int kShare>
GPU_DEVICE void wait_products(float (&c)[kShare]) {
  ptx_wgmma_wait_group<N>();
  GPU_UNROLL
  for (int i = 0; i < kShare; ++i) {
    asm volatile("" : "+f"(c[i])::"memory");  // no use of c moves in front of the wait
  }
}

}  // namespace gpu::DSV3_BACKEND
