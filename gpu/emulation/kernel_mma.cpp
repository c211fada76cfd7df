#include "gpu/emulation/kernel_mma.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "gpu/emulation/kernel_memory.hpp"
#include "gpu/emulation/race_checker.hpp"

namespace gpu::emulation {
namespace {

constexpr int kMatrixRows = 8;
constexpr int kRowBytes = 16;

// E4M3 codes as numbers. Exponent and fraction moved to FP32's places mean the number times 2^-120 (convert.hpp); a loop that compilers
// turn into vectors.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void decode_e4m3(const uint8_t* codes, float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t code = codes[i];
    const uint32_t magnitude = code & 0x7FU;
    const float value = std::bit_cast<float>((code & 0x80U) << 24 | magnitude << 20) * 0x1p120f;
    values[i] = magnitude == 0x7F ? std::bit_cast<float>(0x7FC00000U) : value;
  }
}

void decode_bf16(const uint8_t* bytes, float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    values[i] =
        std::bit_cast<float>(static_cast<uint32_t>(bytes[2 * i + 1]) << 24 | static_cast<uint32_t>(bytes[2 * i]) << 16);
  }
}

void decode(OperandFormat format, const std::vector<uint8_t>& bytes, float* values, size_t count) {
  if (format == OperandFormat::kE4m3) {
    decode_e4m3(bytes.data(), values, count);
  } else {
    decode_bf16(bytes.data(), values, count);
  }
}

// One warp tile as plain matrices. Rows of a are contiguous for each k, so that 16 of them are two vectors.
struct Tile {
  int num_rows = 0;
  int num_columns = 0;
  int depth = 0;
  std::vector<float> a;  // [depth][num_rows]
  std::vector<float> b;  // [num_columns][depth]
  std::vector<float> c;  // [num_columns][num_rows]
  // On the way: codes as they lie in a row of a or a column of b, and a before it is transposed.
  std::vector<uint8_t> a_bytes;
  std::vector<uint8_t> b_bytes;
  std::vector<float> a_rows;
};

using Lanes8 = float __attribute__((vector_size(32), aligned(4), may_alias));
constexpr int kBlockRows = 16;
constexpr int kBlockColumns = 4;

// c += a b, each element's products in ascending k, each rounded and then added (the products are exact). The same bits with and
// without AVX2. num_rows is a multiple of 16, num_columns of 8.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void multiply_fp32(Tile& tile) {
  for (int n = 0; n < tile.num_columns; n += kBlockColumns) {
    for (int m = 0; m < tile.num_rows; m += kBlockRows) {
      // Named one by one: kept in an array, the sums would live in memory.
      float* const c = &tile.c[static_cast<size_t>(n * tile.num_rows + m)];
      const auto at = [&](int column, int half) -> Lanes8& {
        return *reinterpret_cast<Lanes8*>(c + column * tile.num_rows + half * 8);
      };
      Lanes8 sum00 = at(0, 0);
      Lanes8 sum01 = at(0, 1);
      Lanes8 sum10 = at(1, 0);
      Lanes8 sum11 = at(1, 1);
      Lanes8 sum20 = at(2, 0);
      Lanes8 sum21 = at(2, 1);
      Lanes8 sum30 = at(3, 0);
      Lanes8 sum31 = at(3, 1);
      const float* a = &tile.a[static_cast<size_t>(m)];
      const float* b = &tile.b[static_cast<size_t>(n * tile.depth)];
      for (int k = 0; k < tile.depth; ++k, a += tile.num_rows, ++b) {
        const Lanes8 rows0 = *reinterpret_cast<const Lanes8*>(a);
        const Lanes8 rows1 = *reinterpret_cast<const Lanes8*>(a + 8);
        const float b0 = b[0];
        const float b1 = b[tile.depth];
        const float b2 = b[2 * tile.depth];
        const float b3 = b[3 * tile.depth];
        sum00 = sum00 + rows0 * b0;
        sum01 = sum01 + rows1 * b0;
        sum10 = sum10 + rows0 * b1;
        sum11 = sum11 + rows1 * b1;
        sum20 = sum20 + rows0 * b2;
        sum21 = sum21 + rows1 * b2;
        sum30 = sum30 + rows0 * b3;
        sum31 = sum31 + rows1 * b3;
      }
      at(0, 0) = sum00;
      at(0, 1) = sum01;
      at(1, 0) = sum10;
      at(1, 1) = sum11;
      at(2, 0) = sum20;
      at(2, 1) = sum21;
      at(3, 0) = sum30;
      at(3, 1) = sum31;
    }
  }
}

// Which k each instruction takes, in the order of its own k: bytes 4t, 4t + 1 first for E4M3 (see multiply_e4m3).
std::vector<int> instruction_order(OperandFormat format, int depth) {
  std::vector<int> order;
  if (format != OperandFormat::kE4m3) {
    for (int k = 0; k < depth; ++k) {
      order.push_back(k);
    }
    return order;
  }
  for (int step = 0; step < depth; step += kTileBytes) {
    for (int half = 0; half < 2; ++half) {
      for (int k = 0; k < kTileBytes; k += 4) {
        order.push_back(step + k + 2 * half);
        order.push_back(step + k + 2 * half + 1);
      }
    }
  }
  return order;
}

void multiply_tensor_core(const TensorCoreStep& step, OperandFormat format, Tile& tile) {
  const std::vector<int> order = instruction_order(format, tile.depth);
  const OperandFormat operand = format == OperandFormat::kE4m3 ? OperandFormat::kFp16 : format;
  std::vector<float> a(order.size());
  std::vector<float> b(order.size());
  for (int n = 0; n < tile.num_columns; ++n) {
    for (size_t i = 0; i < order.size(); ++i) {
      b[i] = tile.b[static_cast<size_t>(n * tile.depth + order[i])];
    }
    for (int m = 0; m < tile.num_rows; ++m) {
      for (size_t i = 0; i < order.size(); ++i) {
        a[i] = tile.a[static_cast<size_t>(order[i] * tile.num_rows + m)];
      }
      float& c = tile.c[static_cast<size_t>(n * tile.num_rows + m)];
      c = tensor_core_chain(step, operand, a, b, c);
    }
  }
}

struct ProductOperands {
  FragmentC* c;
  const FragmentA* a;
  const FragmentB* b;
};

struct ProductCall {
  OperandFormat format;
  WarpTile tile;
};

void gather(void* const* operands, const ProductCall& call, Tile& tile) {
  const auto& [steps, row_tiles, column_tiles] = call.tile;
  const int step_depth = call.format == OperandFormat::kE4m3 ? kTileBytes : kTileBytes / 2;
  tile.num_rows = row_tiles * kTileRows;
  tile.num_columns = column_tiles * kTileColumns;
  tile.depth = steps * step_depth;
  tile.a.resize(static_cast<size_t>(tile.depth * tile.num_rows));
  tile.a_rows.resize(tile.a.size());
  tile.b.resize(static_cast<size_t>(tile.depth * tile.num_columns));
  tile.c.resize(static_cast<size_t>(tile.num_rows * tile.num_columns));
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
  decode(call.format, tile.b_bytes, tile.b.data(), tile.b.size());
  decode(call.format, tile.a_bytes, tile.a_rows.data(), tile.a_rows.size());
  for (int row = 0; row < tile.num_rows; ++row) {
    for (int k = 0; k < tile.depth; ++k) {
      tile.a[static_cast<size_t>(k * tile.num_rows + row)] = tile.a_rows[static_cast<size_t>(row * tile.depth + k)];
    }
  }
}

// Calls visit(fragment element, tile element) for all of c.
template <typename Visit>
void for_each_c(void* const* operands, const WarpTile& shape, Tile& tile, const Visit& visit) {
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
  thread_local Tile tile;
  gather(operands, call, tile);
  for_each_c(operands, call.tile, tile, [](const float& mine, float& element) { element = mine; });
  BlockRunner& runner = *BlockRunner::current();
  switch (runner.options().accumulation) {
    case Accumulation::kFp32: multiply_fp32(tile); break;
    case Accumulation::kHopper: multiply_tensor_core(kHopper16Bit, call.format, tile); break;
    case Accumulation::kAmpere: multiply_tensor_core(kAmpere16Bit, call.format, tile); break;
  }
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
