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
constexpr int kStepWords = kTileBytes / 4;

struct ProductOperands {
  FragmentC* c;
  const FragmentA* a;
  const FragmentB* b;
};

struct ProductCall {
  OperandFormat format;
  WarpTile tile;
};

// Sizes are copied before the loops: codes are words as they are, so a store to one might change them for all that the compiler knows.
void gather(void* const* operands, const ProductCall& call, TileProduct& tile) {
  const auto [steps, row_tiles, column_tiles] = call.tile;
  tile.resize(row_tiles * kTileRows, column_tiles * kTileColumns, steps * kStepWords, call.format);
  const int num_rows = tile.num_rows;
  const int num_columns = tile.num_columns;
  for (int lane = 0; lane < kWarpLen; ++lane) {
    const auto mine = *static_cast<const ProductOperands*>(operands[lane]);
    uint32_t* a_words = tile.a_words.data() + lane % 4 * num_rows + lane / 4;
    uint32_t* b_words = tile.b_words.data() + lane % 4 * num_columns + lane / 4;
    for (int step = 0; step < steps; ++step) {
      for (int r = 0; r < row_tiles; ++r) {
        const FragmentA a = mine.a[step * row_tiles + r];
        uint32_t* const to = a_words + r * kTileRows;
        to[0] = a.at[0];
        to[8] = a.at[1];
        to[4 * num_rows] = a.at[2];
        to[4 * num_rows + 8] = a.at[3];
      }
      for (int n = 0; n < column_tiles; ++n) {
        const FragmentB b = mine.b[step * column_tiles + n];
        uint32_t* const to = b_words + n * kTileColumns;
        to[0] = b.at[0];
        to[4 * num_columns] = b.at[1];
      }
      a_words += kStepWords * num_rows;
      b_words += kStepWords * num_columns;
    }
  }
  tile.decode(call.format);
}

// Calls visit(fragment element, tile element) for all of c.
template <typename Visit>
void for_each_c(void* const* operands, const WarpTile& shape, TileProduct& tile, const Visit& visit) {
  const auto [steps, row_tiles, column_tiles] = shape;
  const int num_rows = tile.num_rows;
  for (int lane = 0; lane < kWarpLen; ++lane) {
    FragmentC* c = static_cast<const ProductOperands*>(operands[lane])->c;
    float* const of_lane = tile.c.data() + emulated::column_of_c(lane, 0) * num_rows + emulated::row_of_c(lane, 0);
    for (int r = 0; r < row_tiles; ++r) {
      for (int n = 0; n < column_tiles; ++n, ++c) {
        float* const of_tile = of_lane + n * kTileColumns * num_rows + r * kTileRows;
        visit(c->at[0], of_tile[0]);
        visit(c->at[1], of_tile[num_rows]);
        visit(c->at[2], of_tile[8]);
        visit(c->at[3], of_tile[num_rows + 8]);
      }
    }
  }
}

// Apart from whose tile it is: every access to a thread_local object is computed anew.
[[gnu::noinline]] void multiply(void* const* operands, const ProductCall& call, TileProduct& tile) {
  gather(operands, call, tile);
  for_each_c(operands, call.tile, tile, [](const float& mine, float& element) { element = mine; });
  BlockRunner& runner = *BlockRunner::current();
  tile.multiply_warp(runner.options().accumulation, call.format);
  for_each_c(operands, call.tile, tile, [](float& mine, const float& element) { mine = element; });
  runner.flops += int64_t{2} * tile.num_rows * tile.num_columns * tile.depth;
}

void multiply_for_warp(void* const* operands, const void* closure) {
  thread_local TileProduct tile;
  multiply(operands, *static_cast<const ProductCall*>(closure), tile);
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

// What a lane gets of its matrix number n: row(matrix, r) is where that row lies.
template <typename Row>
Vector<uint32_t, 4> rows_of_lane(int lane, const Row& row) {
  Vector<uint32_t, 4> words;
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::memcpy(&words.at[matrix], row(matrix, lane / 4) + lane % 4 * sizeof(uint32_t), sizeof(uint32_t));
  }
  return words;
}
template <typename Row>
Vector<uint32_t, 4> columns_of_lane(int lane, const Row& row) {
  Vector<uint32_t, 4> words;
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::array<uint16_t, 2> elements;
    for (int i = 0; i < 2; ++i) {
      std::memcpy(&elements[static_cast<size_t>(i)],
                  row(matrix, lane % 4 * 2 + i) + lane / 4 * sizeof(uint16_t),
                  sizeof(uint16_t));
    }
    words.at[matrix] = static_cast<uint32_t>(elements[0]) | static_cast<uint32_t>(elements[1]) << 16;
  }
  return words;
}

void load_for_warp(void* const* operands, const void* closure) {
  const auto& call = *static_cast<const LoadCall*>(closure);
  BlockRunner& runner = *BlockRunner::current();
  RaceChecker* const checker = runner.checker();
  const int first_thread = runner.thread_id() / kWarpLen * kWarpLen;
  std::array<const std::byte*, kWarpLen> rows;
  const auto row = [&](int matrix, int r) { return rows[static_cast<size_t>(matrix * kMatrixRows + r)]; };
  for (int n = 0; n < call.count; ++n) {
    for (int from = 0; from < kWarpLen; ++from) {
      const void* start = static_cast<const LoadOperands*>(operands[from])->rows[n];
      require_aligned(start, kRowBytes, call.site);
      if (checker != nullptr && checker->watches(start)) {
        checker->access(first_thread + from, start, kRowBytes, AccessKind::kRead, checker->origin_of(call.site));
      }
      rows[static_cast<size_t>(from)] = static_cast<const std::byte*>(start);
    }
    for (int lane = 0; lane < kWarpLen; ++lane) {
      static_cast<const LoadOperands*>(operands[lane])->matrices[n] =
          call.order == MatrixOrder::kRows ? rows_of_lane(lane, row) : columns_of_lane(lane, row);
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
