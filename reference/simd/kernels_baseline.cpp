// Kernels for vectors of 16 bytes, which every x86-64 and ARMv8 machine has.
#include "reference/numerics/functions.hpp"
#include "reference/simd/tables.hpp"

namespace reference::simd {
namespace {

using Vec = float __attribute__((vector_size(16)));
using Joined = Vec;  // a vector of lanes after the steps that whole registers can do: (i, i+8), (i, i+4)

constexpr int kVecLen = 4;
constexpr int kNumBytes = 32;  // of codes that are decoded together
constexpr int kNumSums = 8;    // 4 x 2 outputs: 8 of 16 registers, since a product that is not fused takes one as well
constexpr int kTileTokens = 4;

inline Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
inline void keep_in_register(Vec&) {}
inline void store(float* p, Vec v) {
  __builtin_memcpy(p, &v, sizeof(v));
}
inline Vec multiply_add(Vec sum, Vec a, Vec b) {
  return sum + a * b;
}
// There is no fused form at this level, and where it is asked for it would have the same bits.
inline Vec multiply_add_fused(Vec sum, Vec a, Vec b) {
  return sum + a * b;
}
inline Joined join(const Vec (&lanes)[4]) {
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}
// (i, i+2), (i, i+1) of eight vectors.
inline void finish(const Joined* rows, float* sums) {
  for (int r = 0; r < 8; ++r) {
    const Joined v = rows[r];
    sums[r] = (v[0] + v[2]) + (v[1] + v[3]);
  }
}
// Exponent and fraction move to their places in a float, whose exponent is then 120 too small. A subnormal code f * 2^-9 becomes
// (1 + f / 8) * 2^-6, less 2^-6.
using Wide = float;
constexpr float kWideFactor = 1;
inline void widen_e4m3(const uint8_t* codes, Wide* wide) {
  for (int i = 0; i < kNumBytes; ++i) {
    const uint32_t magnitude = static_cast<uint32_t>(codes[i] & 0x7F) << 20;
    const uint32_t is_subnormal = magnitude < 0x00800000 ? 0xFFFFFFFF : 0;
    const float number = __builtin_bit_cast(float, magnitude + 0x3C000000 + (is_subnormal & 0x00800000)) -
                         __builtin_bit_cast(float, is_subnormal & 0x3C800000);
    const uint32_t sign = static_cast<uint32_t>(codes[i] & 0x80) << 24;
    wide[i] = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, number) | sign);
  }
}
inline Vec load_wide(const Wide* wide) {
  return load(wide);
}
inline Vec load_bf16(const uint16_t* codes) {
  using Four = uint16_t __attribute__((vector_size(8)));
  using Bits = uint32_t __attribute__((vector_size(16)));
  Four four;
  __builtin_memcpy(&four, codes, sizeof(four));
  return (Vec)(__builtin_convertvector(four, Bits) << 16);
}

#include "reference/simd/kernel_bodies.hpp"

}  // namespace

const Kernels kBaselineKernels = table_of(Level::kBaseline);

}  // namespace reference::simd
