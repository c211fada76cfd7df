// Kernels for vectors of 16 bytes, which every x86-64 and ARMv8 machine has.
#include "reference/numerics/functions.hpp"
#include "reference/simd/tables.hpp"

namespace reference::simd {
namespace {

using Vec = float __attribute__((vector_size(16)));
using Joined = Vec;  // a vector of lanes after the steps that whole registers can do: (i, i+8), (i, i+4)

constexpr int kVecLen = 4;
constexpr int kTileRows = 2;
constexpr int kTileTokens = 1;
constexpr int kSingleTokenRows = 2;

inline Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
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
inline void decode_sixteen_e4m3(const uint8_t* codes, float* out) {
  for (int i = 0; i < 16; ++i) {
    const uint32_t bits =
        (static_cast<uint32_t>(codes[i] & 0x80) << 24) | (static_cast<uint32_t>(codes[i] & 0x7F) << 20);
    out[i] = __builtin_bit_cast(float, bits) * 0x1p120f;
  }
}

#include "reference/simd/kernel_bodies.hpp"

}  // namespace

const Kernels kBaselineKernels = table_of(Level::kBaseline);

}  // namespace reference::simd
