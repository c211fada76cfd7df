// Kernels for AVX-512; this file alone is compiled for it. The note in kernels_avx2.cpp holds here too.
#include <immintrin.h>

#include "reference/numerics/functions.hpp"
#include "reference/simd/tables.hpp"

namespace reference::simd {
namespace {

using Vec = __m512;
using Joined = __m512;

constexpr int kVecLen = 16;
constexpr int kNumBytes = 32;  // of codes that are decoded together
constexpr int kNumSums = 24;   // 6 x 4 outputs: 24 of the 32 registers
constexpr int kTileTokens = 6;

inline Vec load(const float* p) {
  return _mm512_loadu_ps(p);
}
// Otherwise g++ loads a vector again for every instruction that uses it, and loads are what there are too many of.
inline void keep_in_register(Vec& v) {
  asm("" : "+v"(v));
}
inline void store(float* p, Vec v) {
  _mm512_storeu_ps(p, v);
}
inline Vec multiply_add(Vec sum, Vec a, Vec b) {
  return _mm512_add_ps(sum, _mm512_mul_ps(a, b));
}
inline Vec multiply_add_fused(Vec sum, Vec a, Vec b) {
  return _mm512_fmadd_ps(a, b, sum);
}
inline Joined join(const Vec (&lanes)[1]) {
  return lanes[0];
}

// Sums of eight vectors of sixteen lanes: (i, i+8), (i, i+4), (i, i+2), (i, i+1), by moving the lanes of several rows beside each other.
inline void finish(const Joined* rows, float* sums) {
  const auto halves = [&](int r, int other) {  // {row r, row other}, eight lanes each
    return _mm512_add_ps(_mm512_shuffle_f32x4(rows[r], rows[other], 0x44),
                         _mm512_shuffle_f32x4(rows[r], rows[other], 0xEE));
  };
  const auto quads = [](Vec a, Vec b) {  // the four rows of a and b, four lanes each
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  };
  const __m512d even = _mm512_castps_pd(quads(halves(0, 2), halves(4, 6)));
  const __m512d odd = _mm512_castps_pd(quads(halves(1, 3), halves(5, 7)));
  const Vec pairs =  // in quarter q: two lanes of row 2q, two of row 2q + 1
      _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(even, odd)), _mm512_castpd_ps(_mm512_unpackhi_pd(even, odd)));
  const Vec all = _mm512_add_ps(_mm512_shuffle_ps(pairs, pairs, 0x88), _mm512_shuffle_ps(pairs, pairs, 0xDD));
  const __m512i lower = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);  // of each quarter
  _mm256_storeu_pd(reinterpret_cast<double*>(sums),
                   _mm512_castpd512_pd256(_mm512_permutexvar_pd(lower, _mm512_castps_pd(all))));
}

// As in kernels_avx2.cpp.
using Wide = uint16_t;
constexpr float kWideFactor = 256;
inline void widen_e4m3(const uint8_t* codes, Wide* wide) {
  const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  const __m512i bits = _mm512_and_si512(_mm512_slli_epi16(_mm512_cvtepi8_epi16(all), 7),
                                        _mm512_set1_epi16(static_cast<int16_t>(0xBF80)));
  _mm512_storeu_si512(wide, bits);
}
inline Vec load_wide(const Wide* wide) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(wide)));
}
inline Vec load_bf16(const uint16_t* codes) {
  const __m256i sixteen = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(sixteen), 16));
}

#include "reference/simd/kernel_bodies.hpp"

}  // namespace

const Kernels kAvx512Kernels = table_of(Level::kAvx512);

}  // namespace reference::simd
