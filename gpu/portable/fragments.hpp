// Operands of the tensor cores as the lanes of a warp hold them. Layouts: PTX ISA, mma.m16n8k16 (BF16) and mma.m16n8k32 (8-bit). In
// bytes they are the same, with g = lane / 4 and t = lane % 4:
//   A, 16 rows x 32 bytes: at[0] row g, bytes 4t..4t+3; at[1] row g + 8; at[2] and at[3] the same rows, 16 bytes further
//   B, 32 bytes x 8 columns: at[0] column g, bytes 4t..4t+3; at[1] 16 bytes further
//   C, 16 rows x 8 columns: at[0], at[1] row g, columns 2t and 2t + 1; at[2], at[3] row g + 8
#pragma once

#include <cstdint>

#include "gpu/portable/backend.hpp"

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

}  // namespace gpu::DSV3_BACKEND
