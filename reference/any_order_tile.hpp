// The inner loop of any_order.hpp: weights and rows of x meet as an outer product in registers, so that a vector of tokens, once loaded,
// serves several weights, and no sum is ever joined from lanes.
#pragma once

#include <cstdint>

#include "reference/numerics/reduce.hpp"
#include "reference/simd/level.hpp"

namespace reference {

inline constexpr int64_t kTileRows = 24;  // weight rows that are decoded together

// One block of 128 products of K. Rows and tokens beyond those of the matrices are zeros.
struct TileProducts {
  const float* weights = nullptr;  // [kTileRows, 128]
  // Tiles of two vectors of tokens, one behind the other and each [128, its tokens]; the last may be one vector wide.
  const float* x = nullptr;
  int64_t num_tokens = 0;           // a multiple of TileKernel::vec_len
  const float* w_scales = nullptr;  // [kTileRows]
  const float* x_scales = nullptr;  // [num_tokens], or null: no scales
  float* totals = nullptr;          // [kTileRows, num_tokens]: the scaled sums are added to it
};

struct TileKernel {
  int64_t vec_len;  // tokens of a vector
  void (*add)(const TileProducts& products);
};
// One a level, each defined in a file that is compiled for it. Internal to tile_kernel().
extern const TileKernel kBaselineTile;
extern const TileKernel kAvx2Tile;
extern const TileKernel kAvx512Tile;

// That of a supported level.
const TileKernel& tile_kernel(simd::Level level);

}  // namespace reference
