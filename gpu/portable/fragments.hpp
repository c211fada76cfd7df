// Operands of the tensor cores as the lanes of a warp hold them. Layouts: PTX ISA, mma.m16n8k16 (BF16, FP16) and mma.m16n8k32 (8-bit). In
// bytes they are the same, with g = lane / 4 and t = lane % 4:
//   A, 16 rows x 32 bytes: at[0] row g, bytes 4t..4t+3; at[1] row g + 8; at[2] and at[3] the same rows, 16 bytes further
//   B, 32 bytes x 8 columns: at[0] column g, bytes 4t..4t+3; at[1] 16 bytes further
//   C, 16 rows x 8 columns: at[0], at[1] row g, columns 2t and 2t + 1; at[2], at[3] row g + 8
#pragma once

#include <cstdint>

#include "gpu/portable/backend.hpp"
#include "gpu/portable/types.hpp"

namespace gpu {

struct FragmentA {
  uint32_t at[4];
};
struct FragmentB {
  uint32_t at[2];
};
struct FragmentC {
  float at[4];
};

inline constexpr int kTileRows = 16;
inline constexpr int kTileColumns = 8;
inline constexpr int kTileBytes = 32;  // of k in one instruction

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

// Place of element i of a lane's C fragment in its tile.
GPU_DEVICE int row_of_c(int lane, int i) {
  return lane / 4 + 8 * (i / 2);
}
GPU_DEVICE int column_of_c(int lane, int i) {
  return lane % 4 * 2 + i % 2;
}

// From what load_matrices() gave: A of each step, then for each step the columns of B in pairs.
template <int kSteps, int kColumns>
GPU_DEVICE void unpack_operands(const Vector<uint32_t, 4> (&loaded)[kSteps * (1 + kColumns / 2)],
                                FragmentA (&a)[kSteps][1],
                                FragmentB (&b)[kSteps][kColumns]) {
  GPU_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      a[step][0].at[i] = loaded[step].at[i];
    }
    GPU_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      const auto& of_pair = loaded[kSteps + step * (kColumns / 2) + n / 2];
      b[step][n] = {{of_pair.at[n % 2 * 2], of_pair.at[n % 2 * 2 + 1]}};
    }
  }
}

}  // namespace gpu::DSV3_BACKEND
