#include "gpu/emulation/tile_product.hpp"

#include <numeric>

#include "gpu/portable/fragments.hpp"
#include "model/check.hpp"

namespace gpu::emulation {
namespace {

using Lanes8 = float __attribute__((vector_size(32), aligned(4), may_alias));
using Words8 = uint32_t __attribute__((vector_size(32), aligned(4), may_alias));

// Codes in words as numbers: [num_words][width] words become [num_words * codes of a word][width] numbers. width is a multiple of 8.

// Exponent and fraction of E4M3 moved to FP32's places mean the number times 2^-120 (convert.hpp); a magnitude of all ones is NaN.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void decode_e4m3(const uint32_t* words, int num_words, int width, float* values) {
  for (int word = 0; word < num_words; ++word) {
    for (int at = 0; at < width; at += 8) {
      const Words8 codes = *reinterpret_cast<const Words8*>(words + word * width + at);
      float* const to = values + 4 * word * width + at;
      for (int byte = 0; byte < 4; ++byte) {
        const Words8 magnitudes = codes >> 8 * byte & 0x7FU;
        const Words8 signs = codes << (24 - 8 * byte) & 0x80000000U;
        const auto scaled = reinterpret_cast<Lanes8>(signs | magnitudes << 20) * 0x1p120f;
        const auto is_nan = reinterpret_cast<Words8>(magnitudes == 0x7FU);
        *reinterpret_cast<Lanes8*>(to + byte * width) =
            reinterpret_cast<Lanes8>(reinterpret_cast<Words8>(scaled) | (is_nan & 0x7FC00000U));
      }
    }
  }
}

#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void decode_bf16(const uint32_t* words, int num_words, int width, float* values) {
  for (int word = 0; word < num_words; ++word) {
    for (int at = 0; at < width; at += 8) {
      const Words8 codes = *reinterpret_cast<const Words8*>(words + word * width + at);
      float* const to = values + 2 * word * width + at;
      *reinterpret_cast<Lanes8*>(to) = reinterpret_cast<Lanes8>(codes << 16);
      *reinterpret_cast<Lanes8*>(to + width) = reinterpret_cast<Lanes8>(codes & 0xFFFF0000U);
    }
  }
}

// FP16 as E4M3: times 2^-112, and an exponent of all ones is infinity or NaN.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void decode_fp16(const uint32_t* words, int num_words, int width, float* values) {
  for (int word = 0; word < num_words; ++word) {
    for (int at = 0; at < width; at += 8) {
      const Words8 codes = *reinterpret_cast<const Words8*>(words + word * width + at);
      float* const to = values + 2 * word * width + at;
      for (int half = 0; half < 2; ++half) {
        const Words8 magnitudes = codes >> 16 * half & 0x7FFFU;
        const Words8 signs = codes << (16 - 16 * half) & 0x80000000U;
        const auto scaled = reinterpret_cast<Lanes8>(signs | magnitudes << 13) * 0x1p112f;
        const auto is_special = reinterpret_cast<Words8>(magnitudes >= 0x7C00U);
        *reinterpret_cast<Lanes8*>(to + half * width) =
            reinterpret_cast<Lanes8>(reinterpret_cast<Words8>(scaled) | (is_special & 0x7F800000U));
      }
    }
  }
}

void decode_words(OperandFormat format, const std::vector<uint32_t>& words, int width, std::vector<float>& values) {
  const int num_words = static_cast<int>(words.size()) / width;
  switch (format) {
    case OperandFormat::kE4m3: decode_e4m3(words.data(), num_words, width, values.data()); break;
    case OperandFormat::kBf16: decode_bf16(words.data(), num_words, width, values.data()); break;
    case OperandFormat::kFp16: decode_fp16(words.data(), num_words, width, values.data()); break;
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
      const float* b = &tile.b[static_cast<size_t>(n)];
      for (int k = 0; k < tile.depth; ++k, a += tile.num_rows, b += tile.num_columns) {
        const Lanes8 rows0 = *reinterpret_cast<const Lanes8*>(a);
        const Lanes8 rows1 = *reinterpret_cast<const Lanes8*>(a + 8);
        const float b0 = b[0];
        const float b1 = b[1];
        const float b2 = b[2];
        const float b3 = b[3];
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
      b[i] = tile.b[static_cast<size_t>(order[i] * tile.num_columns + n)];
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

void TileProduct::resize(int rows, int columns, int words, OperandFormat format) {
  num_rows = rows;
  num_columns = columns;
  depth = words * (format == OperandFormat::kE4m3 ? 4 : 2);
  a_words.resize(static_cast<size_t>(words * rows));
  b_words.resize(static_cast<size_t>(words * columns));
  a.resize(static_cast<size_t>(depth * rows));
  b.resize(static_cast<size_t>(depth * columns));
  c.resize(static_cast<size_t>(rows * columns));
}

void TileProduct::decode(OperandFormat format) {
  decode_words(format, a_words, num_rows, a);
  decode_words(format, b_words, num_columns, b);
}

void TileProduct::multiply_warp(Accumulation accumulation, OperandFormat format) {
  const OperandFormat operand = format == OperandFormat::kE4m3 ? OperandFormat::kFp16 : format;
  if (accumulation == Accumulation::kFp32) {
    multiply_fp32(*this);
    return;
  }
  const auto& step = accumulation == Accumulation::kHopper ? kHopper16Bit : kAmpere16Bit;
  multiply_tensor_core(step, operand, instruction_order(format, depth), *this);
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
