// The fast FP8 block on AVX-512 vectors. fp8_block.hpp says how it works.
#include "reference/tensor_core/fp8_block.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include "reference/tensor_core/fp8_block_parts.hpp"

namespace reference::tensor_core {
namespace {

using namespace fp8_block;

__attribute__((noinline, target("avx512f,avx2,fma"))) void run_avx512(const Fp8Block& block,
                                                                      const Fp8Tile& tile,
                                                                      float* partial) {
  constexpr int kNumPacks = kFp8TileCols / 16;
  __m512 c[kNumPacks];
  for (auto& pack : c) {
    pack = _mm512_setzero_ps();
  }
  const __m512 zero = _mm512_setzero_ps();
  for (int begin = 0; begin < kFp8BlockLen; begin += kStepLen) {
    __m256i largest = _mm256_set1_epi8(-127);
    for (int k = begin; k < begin + kStepLen; ++k) {
      const __m256i sum = _mm256_add_epi8(_mm256_set1_epi8(block.exponent[k]),
                                          _mm256_load_si256(reinterpret_cast<const __m256i*>(tile.exponent[k])));
      largest = _mm256_max_epi8(largest, sum);
    }
    const __m128i halves[kNumPacks] = {_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1)};
    __m512 above[kNumPacks];
    __m512 below[kNumPacks];
    for (int i = 0; i < kNumPacks; ++i) {
      const __m512i wide = _mm512_add_epi32(_mm512_cvtepi8_epi32(halves[i]), _mm512_set1_epi32(127));
      const __m512i field =
          _mm512_max_epi32(_mm512_slli_epi32(wide, kFractionBits),
                           _mm512_and_si512(_mm512_castps_si512(c[i]), _mm512_set1_epi32(kExponentMask)));
      const __m512 anchor =
          _mm512_castsi512_ps(_mm512_add_epi32(field, _mm512_set1_epi32(kAnchorShift << kFractionBits)));
      above[i] = _mm512_add_ps(anchor, _mm512_max_ps(c[i], zero));
      below[i] = _mm512_sub_ps(_mm512_min_ps(c[i], zero), anchor);
    }
    for (int k = begin; k < begin + kStepLen; ++k) {
      const bool minus = block.value[k] < 0;
      const float* to_above = (minus ? tile.negative : tile.positive)[k];
      const float* to_below = (minus ? tile.positive : tile.negative)[k];
      const __m512 x = _mm512_set1_ps(block.value[k]);
      for (int i = 0; i < kNumPacks; ++i) {
        above[i] = _mm512_fmadd_ps(x, _mm512_load_ps(to_above + 16 * i), above[i]);
        below[i] = _mm512_fmadd_ps(x, _mm512_load_ps(to_below + 16 * i), below[i]);
      }
    }
    for (int i = 0; i < kNumPacks; ++i) {
      const __m512i sum = _mm512_castps_si512(_mm512_add_ps(above[i], below[i]));
      c[i] = _mm512_castsi512_ps(_mm512_and_si512(sum, _mm512_set1_epi32(kResultMask)));
    }
  }
  for (int i = 0; i < kNumPacks; ++i) {
    _mm512_storeu_ps(partial + 16 * i, c[i]);
  }
}

}  // namespace

void fp8_block_avx512(const Fp8Block& block, const Fp8Tile& tile, float* partial) {
  const RoundTowardZero rounding;
  run_avx512(block, tile, partial);
}

}  // namespace reference::tensor_core
#endif
