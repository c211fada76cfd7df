#include "reference/tensor_core/fp8_block.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "model/check.hpp"
#include "reference/tensor_core/fp8_block_parts.hpp"
#include "reference/tensor_core/number.hpp"

namespace reference::tensor_core {
namespace {

using namespace fp8_block;

constexpr int8_t kZeroExponent = -60;  // less than any sum of two real exponents, -12, even beside the largest, 8

struct Factor {
  float value;
  int8_t exponent;
};

// Of each code; NaN is 0 with `finite` false.
struct Factors {
  std::array<Factor, 256> of;
  std::array<bool, 256> finite;
};

const Factors& factors() {
  static const Factors table = [] {
    Factors made{};
    for (uint32_t code = 0; code < made.of.size(); ++code) {
      const Number x = unpack(Format::kE4m3, code);
      const float magnitude = std::ldexp(static_cast<float>(x.mantissa), x.exponent - 3);
      made.of[code] = {x.negative ? -magnitude : magnitude,
                       x.mantissa == 0 ? kZeroExponent : static_cast<int8_t>(x.exponent)};
      made.finite[code] = x.kind == Number::Kind::kFinite;
    }
    return made;
  }();
  return table;
}

__attribute__((noinline)) void run_portable(const Fp8Block& block, const Fp8Tile& tile, float* partial) {
  for (int n = 0; n < kFp8TileCols; ++n) {
    float c = 0;
    for (int begin = 0; begin < kFp8BlockLen; begin += kStepLen) {
      int largest = -127;
      for (int k = begin; k < begin + kStepLen; ++k) {
        largest = std::max(largest, block.exponent[k] + tile.exponent[k][n]);
      }
      const int exponent_bits = std::max((largest + 127) << kFractionBits, std::bit_cast<int>(c) & kExponentMask);
      const float anchor = std::bit_cast<float>(exponent_bits + (kAnchorShift << kFractionBits));
      float above = anchor + std::max(c, 0.0f);
      float below = -anchor + std::min(c, 0.0f);
      for (int k = begin; k < begin + kStepLen; ++k) {
        const bool minus = block.value[k] < 0;
        above += block.value[k] * (minus ? tile.negative : tile.positive)[k][n];
        below += block.value[k] * (minus ? tile.positive : tile.negative)[k][n];
      }
      c = std::bit_cast<float>(std::bit_cast<int>(above + below) & kResultMask);
    }
    partial[n] = c;
  }
}

}  // namespace

bool unpack_fp8_tile(std::span<const std::span<const uint8_t>> codes, Fp8Tile& tile) {
  CHECK(codes.size() <= kFp8TileCols);
  const Factors& table = factors();
  bool finite = true;
  for (size_t k = 0; k < kFp8BlockLen; ++k) {
    for (size_t n = 0; n < kFp8TileCols; ++n) {
      const uint8_t code = n < codes.size() && k < codes[n].size() ? codes[n][k] : uint8_t{0};
      const Factor factor = table.of[code];
      finite = finite && table.finite[code];
      tile.positive[k][n] = std::max(factor.value, 0.0f);
      tile.negative[k][n] = std::min(factor.value, 0.0f);
      tile.exponent[k][n] = factor.exponent;
    }
  }
  return finite;
}

bool unpack_fp8_block(std::span<const uint8_t> codes, Fp8Block& block) {
  CHECK(codes.size() <= kFp8BlockLen);
  const Factors& table = factors();
  bool finite = true;
  for (size_t k = 0; k < kFp8BlockLen; ++k) {
    const uint8_t code = k < codes.size() ? codes[k] : uint8_t{0};
    finite = finite && table.finite[code];
    block.value[k] = table.of[code].value;
    block.exponent[k] = table.of[code].exponent;
  }
  return finite;
}

void fp8_block_portable(const Fp8Block& block, const Fp8Tile& tile, float* partial) {
  const RoundTowardZero rounding;
  run_portable(block, tile, partial);
}

Fp8BlockKernel fp8_block_kernel() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    return fp8_block_avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return fp8_block_avx2;
  }
#endif
  return fp8_block_portable;
}

}  // namespace reference::tensor_core
