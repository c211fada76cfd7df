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
constexpr int kNumBytes = 32;  // of codes that are decoded together
constexpr int kNumSums = 12;   // 3 x 4 outputs: 12 of the 16 registers
constexpr int kTileTokens = 3;

inline Vec load(const float* p) {
  return _mm256_loadu_ps(p);
}
// Otherwise g++ loads a vector again for every instruction that uses it, and loads are what there are too many of.
inline void keep_in_register(Vec& v) {
  asm("" : "+x"(v));
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

// rows[r] holds eight lanes, (i, i+8) done. (i, i+4), (i, i+2), (i, i+1) by moving the lanes of several rows beside each other.
inline void finish(const __m256* rows, float* sums) {
  __m256 quads[4];  // {row r, row r + 4}, four lanes each
  for (int r = 0; r < 4; ++r) {
    quads[r] = _mm256_add_ps(_mm256_permute2f128_ps(rows[r], rows[r + 4], 0x20),
                             _mm256_permute2f128_ps(rows[r], rows[r + 4], 0x31));
  }
  __m256 pairs[2];
  for (int r = 0; r < 2; ++r) {
    const __m256d even = _mm256_castps_pd(quads[2 * r]);
    const __m256d odd = _mm256_castps_pd(quads[2 * r + 1]);
    pairs[r] =
        _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(even, odd)), _mm256_castpd_ps(_mm256_unpackhi_pd(even, odd)));
  }
  _mm256_storeu_ps(
      sums, _mm256_add_ps(_mm256_shuffle_ps(pairs[0], pairs[1], 0x88), _mm256_shuffle_ps(pairs[0], pairs[1], 0xDD)));
}

// E4M3 as binary16: exponent and fraction move to their places, in numbers whose exponent is then 8 too small; subnormal codes
// come out right too.
using Wide = uint16_t;
constexpr float kWideFactor = 256;
inline void widen_e4m3(const uint8_t* codes, Wide* wide) {
  const __m256i keep = _mm256_set1_epi16(static_cast<int16_t>(0xBF80));
  for (int half = 0; half < kNumBytes; half += 16) {
    const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + half));
    const __m256i bits = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(sixteen), 7), keep);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(wide + half), bits);
  }
}
inline Vec load_wide(const Wide* wide) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(wide)));
}
inline Vec load_bf16(const uint16_t* codes) {
  const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight), 16));
}

#include "reference/simd/kernel_bodies.hpp"

}  // namespace

const Kernels kAvx2Kernels = table_of(Level::kAvx2);

}  // namespace reference::simd
