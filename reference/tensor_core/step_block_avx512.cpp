// The steps of step_block.hpp for AVX-512; this file is compiled for it.
// NOTE: no function of the standard library here (reference/simd/kernels_avx2.cpp says why).
#include <immintrin.h>

#include "reference/tensor_core/step_block.hpp"

namespace reference::tensor_core {
namespace {

constexpr int kVecBytes = 64;
#include "reference/tensor_core/step_block_packs.hpp"

inline Ints widened(const uint8_t* bytes) {
  return (Ints)_mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
}
inline Bytes fields_of(const float* numbers) {
  __m128i fields[2];
  for (int i = 0; i < 2; ++i) {
    const __m512i bits = _mm512_load_si512(numbers + 16 * i);
    fields[i] = _mm512_cvtepi32_epi8(_mm512_srli_epi32(bits, 23));  // the sign does not fit
  }
  return (Bytes)_mm256_set_m128i(fields[1], fields[0]);
}
inline Floats positive_part(Floats numbers) {
  return (Floats)_mm512_max_ps((__m512)numbers, _mm512_setzero_ps());
}
inline Floats negative_part(Floats numbers) {
  return (Floats)_mm512_min_ps((__m512)numbers, _mm512_setzero_ps());
}
inline Floats fused(Floats x, Floats w, Floats sum) {
  return (Floats)_mm512_fmadd_ps((__m512)x, (__m512)w, (__m512)sum);
}
constexpr int kRowsOfSums = 4;  // x 2 sums, as many as two ports and a latency of four cycles ask for
inline bool any_negative(Ints numbers) {
  return _mm512_movepi32_mask((__m512i)numbers) != 0;
}

#include "reference/tensor_core/step_block_x86.hpp"

}  // namespace

const StepKernels kAvx512Steps = kX86Steps;

}  // namespace reference::tensor_core
