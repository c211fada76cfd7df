// What both forms of attention share: the weight of a key, and the product of weights and values.
#pragma once

#include "gpu/kernels/linear_tile.cuh"
#include "gpu/portable/fragments.hpp"
#include "gpu/portable/kernel.hpp"

namespace gpu::DSV3_BACKEND {

// exp(x - largest), 0 where nothing was seen yet.
GPU_DEVICE float weight_of(float x, float largest) {
  return x == -INFINITY ? 0.0f : expf(x - largest);
}

// o = o * factor + p V for a warp's 16 rows: p has 64 keys, V the columns of kChunks * kTiles tiles. factor: of rows lane / 4 and
// lane / 4 + 8. chunk_at(key, tile): where the key's 8 columns of a tile lie in shared memory.
template <int kChunks, int kTiles, typename ChunkAt>
GPU_DEVICE void add_weighted_values(FragmentC (&o)[kChunks][1][kTiles],
                                    const float (&factor)[2],
                                    const FragmentA (&p)[kPieceSteps][1],
                                    const ChunkAt& chunk_at) {
  constexpr int kPairs = kPieceSteps / 2;  // 32 keys by 8 columns a load: operand B of two steps
  const int lane = static_cast<int>(thread_idx().x) % kLanes;
  GPU_UNROLL
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const void* rows[kTiles * kPairs];
    Vector<uint32_t, 4> loaded[kTiles * kPairs];
    GPU_UNROLL
    for (int i = 0; i < kTiles * kPairs; ++i) {
      rows[i] = chunk_at(i % kPairs * kLanes + lane, chunk * kTiles + i / kPairs);
    }
    load_matrices_transposed(rows, loaded);
    FragmentB b[kPieceSteps][kTiles];
    GPU_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        o[chunk][0][n].at[i] = multiply(o[chunk][0][n].at[i], factor[i / 2]);
      }
      GPU_UNROLL
      for (int step = 0; step < kPieceSteps; ++step) {
        const auto& of_pair = loaded[n * kPairs + step / 2];
        b[step][n] = {{of_pair.at[step % 2 * 2], of_pair.at[step % 2 * 2 + 1]}};
      }
    }
    multiply_half16(o[chunk], p, b);
  }
}

}  // namespace gpu::DSV3_BACKEND
