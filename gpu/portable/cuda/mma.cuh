// The portability layer's matrix loads and products on the device.
#pragma once

#include <cuda_fp16.h>

#include "gpu/portable/cuda/ptx_mma.cuh"

namespace gpu::DSV3_BACKEND {

template <int N>
GPU_DEVICE void load_matrices(const void* const (&rows)[N], Vector<uint32_t, 4> (&matrices)[N]) {
  GPU_UNROLL
  for (int n = 0; n < N; ++n) {
    matrices[n] = ptx_ldmatrix_x4(rows[n]);
  }
}

template <int N>
GPU_DEVICE void load_matrices_transposed(const void* const (&rows)[N], Vector<uint32_t, 4> (&matrices)[N]) {
  GPU_UNROLL
  for (int n = 0; n < N; ++n) {
    matrices[n] = ptx_ldmatrix_x4_trans(rows[n]);
  }
}

template <int kSteps, int kRows, int kColumns>
GPU_DEVICE void multiply_half16(FragmentC (&c)[kRows][kColumns],
                                const FragmentA (&a)[kSteps][kRows],
                                const FragmentB (&b)[kSteps][kColumns]) {
  GPU_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    GPU_UNROLL
    for (int r = 0; r < kRows; ++r) {
      GPU_UNROLL
      for (int n = 0; n < kColumns; ++n) {
        if constexpr (kIsFp16) {
          ptx_mma_m16n8k16_f16(c[r][n], a[step][r], b[step][n]);
        } else {
          ptx_mma_m16n8k16_bf16(c[r][n], a[step][r], b[step][n]);
        }
      }
    }
  }
}

// Two of the four E4M3 numbers of a register as FP16.
GPU_DEVICE uint32_t halves_of(uint32_t word, int half) {
#if __CUDA_ARCH__ >= 890
  return ptx_cvt_f16x2_e4m3x2(static_cast<uint16_t>(word >> (16 * half)));
#else
  // No such instruction below sm_89: moved to FP16's places the bits mean the number times 2^-8; exact but for NaN, which becomes 480.
  const uint32_t pair = word >> (16 * half);
  const uint32_t spread = (pair & 0x7FU) << 7 | (pair & 0x80U) << 8 | (pair & 0x7F00U) << 15 | (pair & 0x8000U) << 16;
  const __half2 scaled = __hmul2(*reinterpret_cast<const __half2*>(&spread), __float2half2_rn(256.0f));
  return *reinterpret_cast<const uint32_t*>(&scaled);
#endif
}

template <int kSteps, int kRows, int kColumns>
GPU_DEVICE void multiply_e4m3(FragmentC (&c)[kRows][kColumns],
                              const FragmentA (&a)[kSteps][kRows],
                              const FragmentB (&b)[kSteps][kColumns]) {
  GPU_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      FragmentA a_halves[kRows];
      GPU_UNROLL
      for (int r = 0; r < kRows; ++r) {
        GPU_UNROLL
        for (int i = 0; i < 4; ++i) {
          a_halves[r].at[i] = halves_of(a[step][r].at[i], half);
        }
      }
      GPU_UNROLL
      for (int n = 0; n < kColumns; ++n) {
        const FragmentB b_halves{halves_of(b[step][n].at[0], half), halves_of(b[step][n].at[1], half)};
        GPU_UNROLL
        for (int r = 0; r < kRows; ++r) {
          ptx_mma_m16n8k16_f16(c[r][n], a_halves[r], b_halves);
        }
      }
    }
  }
}

}  // namespace gpu::DSV3_BACKEND
