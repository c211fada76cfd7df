// The product of two tiles of codes, as one warp or warpgroup does it: plain matrices in and out, whatever fragments they came in.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/emulation/tensor_core.hpp"

namespace gpu::emulation {

struct TileProduct {
  int num_rows = 0;     // a multiple of 16
  int num_columns = 0;  // a multiple of 8
  int depth = 0;
  // Codes as they lie in a row of a or a column of b.
  std::vector<uint8_t> a_bytes;
  std::vector<uint8_t> b_bytes;
  std::vector<float> c;  // [num_columns][num_rows]
  // Their numbers. Rows of a are contiguous for each k, so that 16 of them are two vectors.
  std::vector<float> a;  // [depth][num_rows]
  std::vector<float> b;  // [num_columns][depth]
  std::vector<float> a_rows;

  void resize(int rows, int columns, int depth_of);
  // a and b from their codes.
  void decode(OperandFormat format);
  // c += a b, by mma.sync or wgmma of the chosen arithmetic. There is no wgmma of kAmpere.
  void multiply_warp(Accumulation accumulation, OperandFormat format);
  void multiply_warpgroup(Accumulation accumulation);
};

}  // namespace gpu::emulation
