// The 128-block of an FP8 linear on a Hopper-like unit, fast: partial sums of many columns at once, with the bits of tc_step.
// How: a running sum that starts at a large power of two M and is added to with rounding toward zero cuts every positive product to the
// last place of M. One sum takes the positive products, another, from -M, the negative ones; M is chosen so that its last place is
// 2^(E - F). Products of E4M3 numbers are exact in FP32, so fusing them makes no difference. Two multiply-adds for each product, and the
// largest exponents on bytes: 2.4 instructions for a vector of products where a plain FP32 product needs one.
#pragma once

#include <cstdint>
#include <span>

namespace reference::tensor_core {

inline constexpr int kFp8BlockLen = 128;
inline constexpr int kFp8TileCols = 32;  // columns (output features) of a tile

// 128 x 32 E4M3 weights, unpacked: [k][column]. 48 KiB.
struct alignas(64) Fp8Tile {
  float positive[kFp8BlockLen][kFp8TileCols];   // the number, or 0 if it is negative
  float negative[kFp8BlockLen][kFp8TileCols];   // the number, or 0 if it is positive
  int8_t exponent[kFp8BlockLen][kFp8TileCols];  // of the unnormalised product's factor, far below all others for 0
};

// 128 E4M3 activations, unpacked.
struct alignas(64) Fp8Block {
  float value[kFp8BlockLen];
  int8_t exponent[kFp8BlockLen];
};

// codes[column][k], at most 32 columns of at most 128 codes each; the rest of the tile is zero. No code may be NaN: returns false then.
bool unpack_fp8_tile(std::span<const std::span<const uint8_t>> codes, Fp8Tile& tile);
bool unpack_fp8_block(std::span<const uint8_t> codes, Fp8Block& block);

// partial[column] = 4 chained tc_step(32, 13, 13) from zero: wgmma on E4M3.
using Fp8BlockKernel = void (*)(const Fp8Block& block, const Fp8Tile& tile, float* partial);
void fp8_block_portable(const Fp8Block& block, const Fp8Tile& tile, float* partial);
#if defined(__x86_64__)
void fp8_block_avx2(const Fp8Block& block, const Fp8Tile& tile, float* partial);
void fp8_block_avx512(const Fp8Block& block, const Fp8Tile& tile, float* partial);
#endif

// The widest one that this machine runs.
Fp8BlockKernel fp8_block_kernel();

}  // namespace reference::tensor_core
