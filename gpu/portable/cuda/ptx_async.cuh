// mbarrier, TMA and wgmma, one PTX instruction each. PTX ISA 8.0; wgmma assembles for sm_90a alone.
#pragma once

#include <cstdint>

#include "gpu/portable/cuda/ptx_copy.cuh"

namespace gpu::DSV3_BACKEND {

GPU_DEVICE void ptx_mbarrier_init(uint64_t* barrier, int num_arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(num_arrivals) : "memory");
}
GPU_DEVICE void ptx_mbarrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

#if __CUDA_ARCH__ >= 900
GPU_DEVICE void ptx_fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
GPU_DEVICE void ptx_mbarrier_arrive_expect_tx(uint64_t* barrier, int num_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(num_bytes)
               : "memory");
}
GPU_DEVICE bool ptx_mbarrier_try_wait_parity(uint64_t* barrier, int parity) {
  uint32_t is_complete;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(is_complete)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return is_complete != 0;
}
GPU_DEVICE void ptx_cp_async_bulk_tensor_2d(void* to, const void* map, int column, int row, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared_address(to)),
      "l"(map),
      "r"(column),
      "r"(row),
      "r"(shared_address(barrier))
      : "memory");
}
GPU_DEVICE void ptx_fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#else
GPU_DEVICE void ptx_fence_mbarrier_init() {
  __trap();
}
GPU_DEVICE void ptx_mbarrier_arrive_expect_tx(uint64_t*, int) {
  __trap();
}
GPU_DEVICE bool ptx_mbarrier_try_wait_parity(uint64_t*, int) {
  __trap();
  return true;
}
GPU_DEVICE void ptx_cp_async_bulk_tensor_2d(void*, const void*, int, int, uint64_t*) {
  __trap();
}
GPU_DEVICE void ptx_fence_proxy_async() {
  __trap();
}
#endif

// A tile's rows of 128 bytes, swizzled, as wgmma wants it told: start / 16; 8 rows are 1024 bytes apart; 128-byte swizzle.
GPU_DEVICE uint64_t tile_descriptor(const void* tile) {
  constexpr uint64_t kStride = 1024 >> 4;
  constexpr uint64_t kSwizzle128 = 1;
  return (shared_address(tile) & 0x3FFFFU) >> 4 | uint64_t{1} << 16 | kStride << 32 | kSwizzle128 << 62;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
GPU_DEVICE void ptx_wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
GPU_DEVICE void ptx_wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N>
GPU_DEVICE void ptx_wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
GPU_DEVICE void ptx_wgmma_m64n128k32_e4m3(float (&c)[64], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1; }"
      : "+f"(c[0]),
        "+f"(c[1]),
        "+f"(c[2]),
        "+f"(c[3]),
        "+f"(c[4]),
        "+f"(c[5]),
        "+f"(c[6]),
        "+f"(c[7]),
        "+f"(c[8]),
        "+f"(c[9]),
        "+f"(c[10]),
        "+f"(c[11]),
        "+f"(c[12]),
        "+f"(c[13]),
        "+f"(c[14]),
        "+f"(c[15]),
        "+f"(c[16]),
        "+f"(c[17]),
        "+f"(c[18]),
        "+f"(c[19]),
        "+f"(c[20]),
        "+f"(c[21]),
        "+f"(c[22]),
        "+f"(c[23]),
        "+f"(c[24]),
        "+f"(c[25]),
        "+f"(c[26]),
        "+f"(c[27]),
        "+f"(c[28]),
        "+f"(c[29]),
        "+f"(c[30]),
        "+f"(c[31]),
        "+f"(c[32]),
        "+f"(c[33]),
        "+f"(c[34]),
        "+f"(c[35]),
        "+f"(c[36]),
        "+f"(c[37]),
        "+f"(c[38]),
        "+f"(c[39]),
        "+f"(c[40]),
        "+f"(c[41]),
        "+f"(c[42]),
        "+f"(c[43]),
        "+f"(c[44]),
        "+f"(c[45]),
        "+f"(c[46]),
        "+f"(c[47]),
        "+f"(c[48]),
        "+f"(c[49]),
        "+f"(c[50]),
        "+f"(c[51]),
        "+f"(c[52]),
        "+f"(c[53]),
        "+f"(c[54]),
        "+f"(c[55]),
        "+f"(c[56]),
        "+f"(c[57]),
        "+f"(c[58]),
        "+f"(c[59]),
        "+f"(c[60]),
        "+f"(c[61]),
        "+f"(c[62]),
        "+f"(c[63])
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}
#else
GPU_DEVICE void ptx_wgmma_fence() {
  __trap();
}
GPU_DEVICE void ptx_wgmma_commit_group() {
  __trap();
}
template <int N>
GPU_DEVICE void ptx_wgmma_wait_group() {
  __trap();
}
GPU_DEVICE void ptx_wgmma_m64n128k32_e4m3(float (&)[64], uint64_t, uint64_t, bool) {
  __trap();
}
#endif

}  // namespace gpu::DSV3_BACKEND
