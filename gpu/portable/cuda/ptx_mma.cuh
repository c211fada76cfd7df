// Matrix instructions, one PTX instruction each.
#pragma once

#include <cstdint>

#include "gpu/portable/cuda/ptx_copy.cuh"
#include "gpu/portable/fragments.hpp"
#include "gpu/portable/types.hpp"

namespace gpu::DSV3_BACKEND {

GPU_DEVICE Vector<uint32_t, 4> ptx_ldmatrix_x4(const void* row) {
  Vector<uint32_t, 4> m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m.at[0]), "=r"(m.at[1]), "=r"(m.at[2]), "=r"(m.at[3])
               : "r"(shared_address(row))
               : "memory");
  return m;
}

GPU_DEVICE Vector<uint32_t, 4> ptx_ldmatrix_x4_trans(const void* row) {
  Vector<uint32_t, 4> m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m.at[0]), "=r"(m.at[1]), "=r"(m.at[2]), "=r"(m.at[3])
               : "r"(shared_address(row))
               : "memory");
  return m;
}

GPU_DEVICE void ptx_mma_m16n8k16_bf16(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}

GPU_DEVICE void ptx_mma_m16n8k16_f16(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}

#if __CUDA_ARCH__ >= 890
// Two E4M3 numbers as two FP16 numbers: exact.
GPU_DEVICE uint32_t ptx_cvt_f16x2_e4m3x2(uint16_t pair) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
  return halves;
}
#endif

}  // namespace gpu::DSV3_BACKEND
