// The steps of step_block.hpp for AVX2 and FMA; this file is compiled for them.
// NOTE: no function of the standard library here (reference/simd/kernels_avx2.cpp says why).
#include <immintrin.h>

#include "reference/tensor_core/step_block.hpp"

namespace reference::tensor_core {
namespace {

constexpr int kVecBytes = 32;
#include "reference/tensor_core/step_block_packs.hpp"

inline Ints widened(const uint8_t* bytes) {
  return (Ints)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
}
inline Bytes fields_of(const float* numbers) {
  __m256i fields[4];
  for (int i = 0; i < 4; ++i) {
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(numbers + 8 * i));
    fields[i] = _mm256_srli_epi32(_mm256_slli_epi32(bits, 1), 24);
  }
  const __m256i bytes =
      _mm256_packus_epi16(_mm256_packus_epi32(fields[0], fields[1]), _mm256_packus_epi32(fields[2], fields[3]));
  return (Bytes)_mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
inline Floats positive_part(Floats numbers) {
  return (Floats)_mm256_max_ps((__m256)numbers, _mm256_setzero_ps());
}
inline Floats negative_part(Floats numbers) {
  return (Floats)_mm256_min_ps((__m256)numbers, _mm256_setzero_ps());
}
inline Floats fused(Floats x, Floats w, Floats sum) {
  return (Floats)_mm256_fmadd_ps((__m256)x, (__m256)w, (__m256)sum);
}
constexpr int kRowsOfSums = 2;  // x 4 sums, 2 counts, 2 places, a weight, 2 of x: 15 of 16 registers
inline bool any_negative(Ints numbers) {
  return _mm256_movemask_ps((__m256)numbers) != 0;
}

#include "reference/tensor_core/step_block_x86.hpp"

}  // namespace

const StepKernels kAvx2Steps = kX86Steps;

}  // namespace reference::tensor_core
