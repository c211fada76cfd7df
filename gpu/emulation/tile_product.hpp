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
  // Codes, four bytes of a row of a, or of a column of b, in a word as they lie in memory: the same word of all rows, then the next.
  std::vector<uint32_t> a_words;  // [word of a row][num_rows]
  std::vector<uint32_t> b_words;  // [word of a column][num_columns]
  std::vector<float> c;           // [num_columns][num_rows]
  // Their numbers. For each k all rows are contiguous, so that 16 of them are two vectors.
  std::vector<float> a;  // [depth][num_rows]
  std::vector<float> b;  // [depth][num_columns]

  // Rows and columns of so many words.
  void resize(int rows, int columns, int words, OperandFormat format);
  // a and b from their codes.
  void decode(OperandFormat format);
  // c += a b, by mma.sync or wgmma of the chosen arithmetic. There is no wgmma of kAmpere.
  void multiply_warp(Accumulation accumulation, OperandFormat format);
  void multiply_warpgroup(Accumulation accumulation);
};

}  // namespace gpu::emulation
