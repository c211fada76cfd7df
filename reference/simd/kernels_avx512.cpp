// Kernels for AVX-512; this file alone is compiled for it. The note in kernels_avx2.cpp holds here too.
#include <immintrin.h>

#include "reference/numerics/functions.hpp"
#include "reference/simd/tables.hpp"

namespace reference::simd {
namespace {

using Vec = __m512;
using Joined = __m256;

constexpr int kVecLen = 16;
constexpr int kTileRows = 4;  // 4 x 6 outputs of one register: 24 of the 32
constexpr int kTileTokens = 6;
constexpr int kSingleTokenRows = 8;

inline Vec load(const float* p) {
  return _mm512_loadu_ps(p);
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
  return _mm256_add_ps(_mm512_castps512_ps256(lanes[0]), _mm512_extractf32x8_ps(lanes[0], 1));
}
#include "reference/simd/avx_tree.hpp"

// As in kernels_avx2.cpp.
inline void decode_sixteen_e4m3(const uint8_t* codes, float* out) {
  const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const __m512i bits = _mm512_and_si512(_mm512_slli_epi32(_mm512_cvtepi8_epi32(sixteen), 20),
                                        _mm512_set1_epi32(static_cast<int>(0x87F00000)));
  _mm512_storeu_ps(out, _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f)));
}

#include "reference/simd/kernel_bodies.hpp"

}  // namespace

const Kernels kAvx512Kernels = table_of(Level::kAvx512);

}  // namespace reference::simd
