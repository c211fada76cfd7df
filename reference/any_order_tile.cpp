#include "reference/any_order_tile.hpp"

namespace reference {

const TileKernel& tile_kernel([[maybe_unused]] simd::Level level) {
#ifdef DSV3_SIMD_X86
  switch (level) {
    case simd::Level::kAvx2: return kAvx2Tile;
    case simd::Level::kAvx512: return kAvx512Tile;
    case simd::Level::kBaseline: break;
  }
#endif
  return kBaselineTile;
}

}  // namespace reference
