#include "gpu/emulation/tile_product.hpp"

#include <bit>
#include <numeric>

#include "gpu/portable/fragments.hpp"
#include "model/check.hpp"

namespace gpu::emulation {
namespace {

using Lanes8 = float __attribute__((vector_size(32), aligned(4), may_alias));
using Words8 = uint32_t __attribute__((vector_size(32)));
using Codes8 = uint8_t __attribute__((vector_size(8), aligned(1), may_alias));
using Halves8 = uint16_t __attribute__((vector_size(16), aligned(1), may_alias));

// E4M3 codes as numbers, `count` a multiple of 8. Exponent and fraction moved to FP32's places mean the number times 2^-120
// (convert.hpp); a magnitude of all ones is NaN.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void decode_e4m3(const uint8_t* codes, float* values, size_t count) {
  for (size_t i = 0; i < count; i += 8) {
    const Words8 words = __builtin_convertvector(*reinterpret_cast<const Codes8*>(codes + i), Words8);
    const Words8 magnitudes = words & 0x7FU;
    const auto scaled = reinterpret_cast<Lanes8>((words & 0x80U) << 24 | magnitudes << 20) * 0x1p120f;
    const auto is_nan = reinterpret_cast<Words8>(magnitudes == 0x7FU);
    *reinterpret_cast<Lanes8*>(values + i) =
        reinterpret_cast<Lanes8>(reinterpret_cast<Words8>(scaled) | (is_nan & 0x7FC00000U));
  }
}

void decode_bf16(const uint8_t* bytes, float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    values[i] =
        std::bit_cast<float>(static_cast<uint32_t>(bytes[2 * i + 1]) << 24 | static_cast<uint32_t>(bytes[2 * i]) << 16);
  }
}

// FP16 likewise: times 2^-112, and an exponent of all ones is infinity or NaN.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void decode_fp16(const uint8_t* bytes, float* values, size_t count) {
  for (size_t i = 0; i < count; i += 8) {
    const Words8 words = __builtin_convertvector(*reinterpret_cast<const Halves8*>(bytes + 2 * i), Words8);
    const Words8 magnitudes = words & 0x7FFFU;
    const auto scaled = reinterpret_cast<Lanes8>((words & 0x8000U) << 16 | magnitudes << 13) * 0x1p112f;
    const auto is_special = reinterpret_cast<Words8>(magnitudes >= 0x7C00U);
    *reinterpret_cast<Lanes8*>(values + i) =
        reinterpret_cast<Lanes8>(reinterpret_cast<Words8>(scaled) | (is_special & 0x7F800000U));
  }
}

void decode_codes(OperandFormat format, const std::vector<uint8_t>& bytes, std::vector<float>& values) {
  switch (format) {
    case OperandFormat::kE4m3: decode_e4m3(bytes.data(), values.data(), values.size()); break;
    case OperandFormat::kBf16: decode_bf16(bytes.data(), values.data(), values.size()); break;
    case OperandFormat::kFp16: decode_fp16(bytes.data(), values.data(), values.size()); break;
  }
}

// to[k][row] = from[row][k]. Both counts are multiples of 8: squares of 8 x 8, by halves, quarters and eighths.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void transpose(const float* from, int num_rows, int depth, float* to) {
  for (int row = 0; row < num_rows; row += 8) {
    for (int k = 0; k < depth; k += 8) {
      Lanes8 x[8];
      Lanes8 y[8];
      for (int i = 0; i < 8; ++i) {
        x[i] = *reinterpret_cast<const Lanes8*>(from + (row + i) * depth + k);
      }
      for (int i = 0; i < 4; ++i) {
        y[i] = __builtin_shufflevector(x[i], x[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        y[i + 4] = __builtin_shufflevector(x[i], x[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
      }
      for (int i = 0; i < 8; i += 4) {
        for (int j = i; j < i + 2; ++j) {
          x[j] = __builtin_shufflevector(y[j], y[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
          x[j + 2] = __builtin_shufflevector(y[j], y[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
      }
      for (int i = 0; i < 8; i += 2) {
        y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
      }
      for (int i = 0; i < 8; ++i) {
        *reinterpret_cast<Lanes8*>(to + (k + i) * num_rows + row) = y[i];
      }
    }
  }
}

constexpr int kBlockRows = 16;
constexpr int kBlockColumns = 4;

// c += a b, each element's products in ascending k, each rounded and then added (the products are exact). The same bits with and
// without AVX2. num_rows is a multiple of 16, num_columns of 8.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void multiply_fp32(TileProduct& tile) {
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

void multiply_tensor_core(const TensorCoreStep& step,
                          OperandFormat operand,
                          const std::vector<int>& order,
                          TileProduct& tile) {
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

}  // namespace

void TileProduct::resize(int rows, int columns, int depth_of) {
  num_rows = rows;
  num_columns = columns;
  depth = depth_of;
  a.resize(static_cast<size_t>(depth * num_rows));
  a_rows.resize(a.size());
  b.resize(static_cast<size_t>(depth * num_columns));
  c.resize(static_cast<size_t>(num_rows * num_columns));
}

void TileProduct::decode(OperandFormat format) {
  decode_codes(format, b_bytes, b);
  decode_codes(format, a_bytes, a_rows);
  transpose(a_rows.data(), num_rows, depth, a.data());
}

void TileProduct::multiply_warp(Accumulation accumulation, OperandFormat format) {
  const OperandFormat operand = format == OperandFormat::kE4m3 ? OperandFormat::kFp16 : format;
  const auto order = instruction_order(format, depth);
  switch (accumulation) {
    case Accumulation::kFp32: multiply_fp32(*this); break;
    case Accumulation::kHopper: multiply_tensor_core(kHopper16Bit, operand, order, *this); break;
    case Accumulation::kAmpere: multiply_tensor_core(kAmpere16Bit, operand, order, *this); break;
  }
}

void TileProduct::multiply_warpgroup(Accumulation accumulation) {
  CHECK(accumulation != Accumulation::kAmpere);
  if (accumulation == Accumulation::kFp32) {
    multiply_fp32(*this);
    return;
  }
  std::vector<int> order(static_cast<size_t>(depth));
  std::iota(order.begin(), order.end(), 0);
  multiply_tensor_core(kHopperWgmmaFp8, OperandFormat::kE4m3, order, *this);
}

}  // namespace gpu::emulation
