// The portability layer's matrix loads and products on the host: one meeting of the warp for a whole tile.
#pragma once

#include <cstdint>

#include "gpu/emulation/block_runner.hpp"
#include "gpu/emulation/tensor_core.hpp"
#include "gpu/portable/fragments.hpp"
#include "gpu/portable/types.hpp"

namespace gpu::emulation {

// How many tiles one call covers: c is [row_tiles][column_tiles], a is [steps][row_tiles], b is [steps][column_tiles].
struct WarpTile {
  int steps = 1;
  int row_tiles = 1;
  int column_tiles = 1;
};

enum class MatrixOrder { kRows, kTransposed };
void load_matrices(const void* const* rows, Vector<uint32_t, 4>* matrices, int count, MatrixOrder order, Site site);
void multiply_tile(
    OperandFormat format, const WarpTile& tile, FragmentC* c, const FragmentA* a, const FragmentB* b, Site site);

}  // namespace gpu::emulation

namespace gpu::DSV3_BACKEND {

// N times ldmatrix.x4: four matrices of 8 rows x 16 bytes in shared memory. Lane l names row l % 8 of matrix l / 8, 16-byte aligned; it
// gets, of matrix i, bytes 4 (l % 4).. of row l / 4.
template <int N>
void load_matrices(const void* const (&rows)[N],
                   Vector<uint32_t, 4> (&matrices)[N],
                   emulation::Site site = emulation::Site::here()) {
  emulation::load_matrices(rows, matrices, N, emulation::MatrixOrder::kRows, site);
}
// The same of 16-bit elements, transposed (ldmatrix.x4.trans): lane l gets, of matrix i, column l / 4 of rows 2 (l % 4) and the next.
template <int N>
void load_matrices_transposed(const void* const (&rows)[N],
                              Vector<uint32_t, 4> (&matrices)[N],
                              emulation::Site site = emulation::Site::here()) {
  emulation::load_matrices(rows, matrices, N, emulation::MatrixOrder::kTransposed, site);
}

// c += a b for E4M3 operands. On the device each step converts to FP16, which is exact, and issues two m16n8k16: the first takes the
// bytes k with k % 4 < 2, the second the others. Hopper has no 8-bit mma.sync of its own.
template <int kSteps, int kRows, int kColumns>
void multiply_e4m3(FragmentC (&c)[kRows][kColumns],
                   const FragmentA (&a)[kSteps][kRows],
                   const FragmentB (&b)[kSteps][kColumns],
                   emulation::Site site = emulation::Site::here()) {
  emulation::multiply_tile(
      emulation::OperandFormat::kE4m3, {kSteps, kRows, kColumns}, &c[0][0], &a[0][0], &b[0][0], site);
}

// c += a b for 16-bit operands, one m16n8k16 a step and tile.
template <int kSteps, int kRows, int kColumns>
void multiply_half16(FragmentC (&c)[kRows][kColumns],
                     const FragmentA (&a)[kSteps][kRows],
                     const FragmentB (&b)[kSteps][kColumns],
                     emulation::Site site = emulation::Site::here()) {
  constexpr auto kFormat = kIsFp16 ? emulation::OperandFormat::kFp16 : emulation::OperandFormat::kBf16;
  emulation::multiply_tile(kFormat, {kSteps, kRows, kColumns}, &c[0][0], &a[0][0], &b[0][0], site);
}

}  // namespace gpu::DSV3_BACKEND
