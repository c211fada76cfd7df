#include "gpu/emulation/kernel_mma.hpp"

#include <array>
#include <cstring>
#include <vector>

#include "gpu/emulation/kernel_memory.hpp"
#include "gpu/emulation/race_checker.hpp"
#include "gpu/emulation/tile_product.hpp"

namespace gpu::emulation {
namespace {

constexpr int kMatrixRows = 8;
constexpr int kRowBytes = 16;

struct ProductOperands {
  FragmentC* c;
  const FragmentA* a;
  const FragmentB* b;
};

struct ProductCall {
  OperandFormat format;
  WarpTile tile;
};

void gather(void* const* operands, const ProductCall& call, TileProduct& tile) {
  const auto& [steps, row_tiles, column_tiles] = call.tile;
  const int step_depth = call.format == OperandFormat::kE4m3 ? kTileBytes : kTileBytes / 2;
  tile.resize(row_tiles * kTileRows, column_tiles * kTileColumns, steps * step_depth);
  const int row_bytes = steps * kTileBytes;
  tile.a_bytes.resize(static_cast<size_t>(tile.num_rows * row_bytes));
  tile.b_bytes.resize(static_cast<size_t>(tile.num_columns * row_bytes));
  for (int lane = 0; lane < kWarpLen; ++lane) {
    const auto& mine = *static_cast<const ProductOperands*>(operands[lane]);
    for (int step = 0; step < steps; ++step) {
      const int byte = step * kTileBytes + lane % 4 * 4;
      for (int r = 0; r < row_tiles; ++r) {
        for (int i = 0; i < 4; ++i) {
          const int row = r * kTileRows + lane / 4 + 8 * (i % 2);
          std::memcpy(&tile.a_bytes[static_cast<size_t>(row * row_bytes + byte + 16 * (i / 2))],
                      &mine.a[step * row_tiles + r].at[i],
                      sizeof(uint32_t));
        }
      }
      for (int n = 0; n < column_tiles; ++n) {
        for (int i = 0; i < 2; ++i) {
          const int column = n * kTileColumns + lane / 4;
          std::memcpy(&tile.b_bytes[static_cast<size_t>(column * row_bytes + byte + 16 * i)],
                      &mine.b[step * column_tiles + n].at[i],
                      sizeof(uint32_t));
        }
      }
    }
  }
  tile.decode(call.format);
}

// Calls visit(fragment element, tile element) for all of c.
template <typename Visit>
void for_each_c(void* const* operands, const WarpTile& shape, TileProduct& tile, const Visit& visit) {
  for (int lane = 0; lane < kWarpLen; ++lane) {
    FragmentC* c = static_cast<const ProductOperands*>(operands[lane])->c;
    for (int r = 0; r < shape.row_tiles; ++r) {
      for (int n = 0; n < shape.column_tiles; ++n) {
        for (int i = 0; i < 4; ++i) {
          const int row = r * kTileRows + emulated::row_of_c(lane, i);
          const int column = n * kTileColumns + emulated::column_of_c(lane, i);
          visit(c[r * shape.column_tiles + n].at[i], tile.c[static_cast<size_t>(column * tile.num_rows + row)]);
        }
      }
    }
  }
}

void multiply_for_warp(void* const* operands, const void* closure) {
  const auto& call = *static_cast<const ProductCall*>(closure);
  thread_local TileProduct tile;
  gather(operands, call, tile);
  for_each_c(operands, call.tile, tile, [](const float& mine, float& element) { element = mine; });
  BlockRunner& runner = *BlockRunner::current();
  tile.multiply_warp(runner.options().accumulation, call.format);
  for_each_c(operands, call.tile, tile, [](float& mine, const float& element) { mine = element; });
  runner.flops += int64_t{2} * tile.num_rows * tile.num_columns * tile.depth;
}

struct LoadOperands {
  const void* const* rows;
  Vector<uint32_t, 4>* matrices;
};

struct LoadCall {
  int count;
  MatrixOrder order;
  Site site;
};

void load_for_warp(void* const* operands, const void* closure) {
  const auto& call = *static_cast<const LoadCall*>(closure);
  BlockRunner& runner = *BlockRunner::current();
  const int first_thread = runner.thread_id() / kWarpLen * kWarpLen;
  for (int n = 0; n < call.count; ++n) {
    for (int from = 0; from < kWarpLen; ++from) {
      const void* row = static_cast<const LoadOperands*>(operands[from])->rows[n];
      require_aligned(row, kRowBytes, call.site);
      if (RaceChecker* checker = runner.checker(); checker != nullptr && checker->watches(row)) {
        checker->access(first_thread + from, row, kRowBytes, AccessKind::kRead, checker->origin_of(call.site));
      }
      const int matrix = from / kMatrixRows;
      const int r = from % kMatrixRows;
      if (call.order == MatrixOrder::kRows) {
        std::array<uint32_t, 4> words;
        std::memcpy(words.data(), row, sizeof(words));
        for (int word = 0; word < 4; ++word) {
          static_cast<const LoadOperands*>(operands[r * 4 + word])->matrices[n].at[matrix] =
              words[static_cast<size_t>(word)];
        }
      } else {
        std::array<uint16_t, kMatrixRows> elements;
        std::memcpy(elements.data(), row, sizeof(elements));
        for (int column = 0; column < kMatrixRows; ++column) {
          uint32_t& word = static_cast<const LoadOperands*>(operands[column * 4 + r / 2])->matrices[n].at[matrix];
          const auto element = static_cast<uint32_t>(elements[static_cast<size_t>(column)]);
          word = r % 2 == 0 ? (word & 0xFFFF0000U) | element : (word & 0xFFFFU) | element << 16;
        }
      }
    }
  }
}

constexpr uint32_t kAllLanes = 0xFFFFFFFFU;

}  // namespace

void load_matrices(const void* const* rows, Vector<uint32_t, 4>* matrices, int count, MatrixOrder order, Site site) {
  LoadOperands mine{rows, matrices};
  const LoadCall call{count, order, site};
  BlockRunner::current()->warp_operation(kAllLanes, "load_matrices", site, &mine, load_for_warp, &call);
}

void multiply_tile(
    OperandFormat format, const WarpTile& tile, FragmentC* c, const FragmentA* a, const FragmentB* b, Site site) {
  ProductOperands mine{c, a, b};
  const ProductCall call{format, tile};
  BlockRunner::current()->warp_operation(kAllLanes, "multiply", site, &mine, multiply_for_warp, &call);
}

}  // namespace gpu::emulation
