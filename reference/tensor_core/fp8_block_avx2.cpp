// The fast FP8 block on AVX2 vectors. fp8_block.hpp says how it works.
#include "reference/tensor_core/fp8_block.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include "reference/tensor_core/fp8_block_parts.hpp"

namespace reference::tensor_core {
namespace {

using namespace fp8_block;

// Exponents as biased FP32 fields of 8 columns.
__attribute__((target("avx2,fma"))) inline __m256i exponent_fields_avx2(const int8_t* exponents) {
  const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponents)));
  return _mm256_slli_epi32(_mm256_add_epi32(wide, _mm256_set1_epi32(127)), kFractionBits);
}

__attribute__((noinline, target("avx2,fma"))) void run_avx2(const Fp8Block& block,
                                                            const Fp8Tile& tile,
                                                            float* partial) {
  constexpr int kNumPacks = kFp8TileCols / 8;
  __m256 c[kNumPacks];
  for (auto& pack : c) {
    pack = _mm256_setzero_ps();
  }
  const __m256 zero = _mm256_setzero_ps();
  for (int begin = 0; begin < kFp8BlockLen; begin += kStepLen) {
    __m256i largest = _mm256_set1_epi8(-127);
    for (int k = begin; k < begin + kStepLen; ++k) {
      const __m256i sum = _mm256_add_epi8(_mm256_set1_epi8(block.exponent[k]),
                                          _mm256_load_si256(reinterpret_cast<const __m256i*>(tile.exponent[k])));
      largest = _mm256_max_epi8(largest, sum);
    }
    alignas(32) int8_t largest_of[kFp8TileCols];
    _mm256_store_si256(reinterpret_cast<__m256i*>(largest_of), largest);
    __m256 above[kNumPacks];
    __m256 below[kNumPacks];
    for (int i = 0; i < kNumPacks; ++i) {
      const __m256i field =
          _mm256_max_epi32(exponent_fields_avx2(largest_of + 8 * i),
                           _mm256_and_si256(_mm256_castps_si256(c[i]), _mm256_set1_epi32(kExponentMask)));
      const __m256 anchor =
          _mm256_castsi256_ps(_mm256_add_epi32(field, _mm256_set1_epi32(kAnchorShift << kFractionBits)));
      above[i] = _mm256_add_ps(anchor, _mm256_max_ps(c[i], zero));
      below[i] = _mm256_sub_ps(_mm256_min_ps(c[i], zero), anchor);
    }
    for (int k = begin; k < begin + kStepLen; ++k) {
      const bool minus = block.value[k] < 0;
      const float* to_above = (minus ? tile.negative : tile.positive)[k];
      const float* to_below = (minus ? tile.positive : tile.negative)[k];
      const __m256 x = _mm256_set1_ps(block.value[k]);
      for (int i = 0; i < kNumPacks; ++i) {
        above[i] = _mm256_fmadd_ps(x, _mm256_load_ps(to_above + 8 * i), above[i]);
        below[i] = _mm256_fmadd_ps(x, _mm256_load_ps(to_below + 8 * i), below[i]);
      }
    }
    for (int i = 0; i < kNumPacks; ++i) {
      c[i] = _mm256_and_ps(_mm256_add_ps(above[i], below[i]), _mm256_castsi256_ps(_mm256_set1_epi32(kResultMask)));
    }
  }
  for (int i = 0; i < kNumPacks; ++i) {
    _mm256_storeu_ps(partial + 8 * i, c[i]);
  }
}

}  // namespace

void fp8_block_avx2(const Fp8Block& block, const Fp8Tile& tile, float* partial) {
  const RoundTowardZero rounding;
  run_avx2(block, tile, partial);
}

}  // namespace reference::tensor_core
#endif
