// Kernels for AVX2 and FMA; this file alone is compiled for them.
// NOTE: no function of the standard library here. The linker keeps one copy of an inline function for the whole program, and it
// must not be the one that only some machines can run.
#include <immintrin.h>

#include "reference/numerics/functions.hpp"
#include "reference/simd/tables.hpp"

namespace reference::simd {
namespace {

using Vec = __m256;
using Joined = __m256;

constexpr int kVecLen = 8;
constexpr int kTileRows = 2;  // 2 x 3 outputs of 2 registers: 12 of the 16
constexpr int kTileTokens = 3;
constexpr int kSingleTokenRows = 4;

inline Vec load(const float* p) {
  return _mm256_loadu_ps(p);
}
inline void store(float* p, Vec v) {
  _mm256_storeu_ps(p, v);
}
inline Vec multiply_add(Vec sum, Vec a, Vec b) {
  return _mm256_add_ps(sum, _mm256_mul_ps(a, b));
}
inline Vec multiply_add_fused(Vec sum, Vec a, Vec b) {
  return _mm256_fmadd_ps(a, b, sum);
}
inline Joined join(const Vec (&lanes)[2]) {
  return _mm256_add_ps(lanes[0], lanes[1]);
}
#include "reference/simd/avx_tree.hpp"

// Exponent and fraction move to their places in a float, whose exponent is then 120 too small; subnormal codes come out right too.
inline void decode_sixteen_e4m3(const uint8_t* codes, float* out) {
  const __m256i keep = _mm256_set1_epi32(static_cast<int>(0x87F00000));
  const __m256 rebias = _mm256_set1_ps(0x1p120f);
  for (int half = 0; half < 2; ++half) {
    const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + 8 * half));
    const __m256i bits = _mm256_and_si256(_mm256_slli_epi32(_mm256_cvtepi8_epi32(eight), 20), keep);
    _mm256_storeu_ps(out + 8 * half, _mm256_mul_ps(_mm256_castsi256_ps(bits), rebias));
  }
}

#include "reference/simd/kernel_bodies.hpp"

}  // namespace

const Kernels kAvx2Kernels = table_of(Level::kAvx2);

}  // namespace reference::simd
