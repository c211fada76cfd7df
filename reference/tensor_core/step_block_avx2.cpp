// The steps of step_block.hpp for AVX2 and FMA; this file is compiled for them.
#include <immintrin.h>

#include "reference/tensor_core/step_block.hpp"

namespace reference::tensor_core {
namespace {

#include "reference/tensor_core/step_block_packs.hpp"

inline __m256 fused(__m256 x, __m256 w, __m256 sum) {
  return _mm256_fmadd_ps(x, w, sum);
}
inline __m256d fused(__m256d x, __m256d w, __m256d sum) {
  return _mm256_fmadd_pd(x, w, sum);
}

#include "reference/tensor_core/step_block_bodies.hpp"

template <typename Real>
void run(const StepSpan& span, const StepRow<Real>& x, const StepTile<Real>& tile, Real* c) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | _MM_ROUND_TOWARD_ZERO);
  run_steps<Real>(span, x, tile, c);
  _mm_setcsr(saved);
}

// Row r of the result is column r of the eight rows.
inline void transpose(__m256 (&rows)[8]) {
  __m256 pairs[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  __m256 fours[8];
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
    fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
  }
}

inline void put(float* out, __m256 numbers) {
  _mm256_store_ps(out, numbers);
}
inline void put(double* out, __m256 numbers) {
  _mm256_store_pd(out, _mm256_cvtps_pd(_mm256_castps256_ps128(numbers)));
  _mm256_store_pd(out + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(numbers, 1)));
}
inline void put(int16_t* out, __m256i exponents) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(exponents), _mm256_extracti128_si256(exponents, 1));
  _mm_store_si128(reinterpret_cast<__m128i*>(out), words);
}
inline void put(int8_t* out, __m256i exponents) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(exponents), _mm256_extracti128_si256(exponents, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packs_epi16(words, words));
}

template <typename Real>
StepRange fill(const StepNumbers& from, StepTile<Real>& tile) {
  const __m256i field_mask = _mm256_set1_epi32(0xFF);
  const __m256i zero_exponent = _mm256_set1_epi32(StepReal<Real>::kZeroExponent);
  const __m256i smallest = _mm256_set1_epi32(from.smallest_exponent);
  const __m256 zero = _mm256_setzero_ps();
  __m256i largest_field = _mm256_setzero_si256();
  for (int k = 0; k < kBlockProducts; k += 8) {
    for (int n = 0; n < StepTile<Real>::kCols; n += 8) {
      __m256 numbers[8];
      for (int i = 0; i < 8; ++i) {
        numbers[i] = _mm256_loadu_ps(from.numbers + (n + i) * kBlockProducts + k);
      }
      transpose(numbers);
      for (int i = 0; i < 8; ++i) {
        const int place = from.places[k + i];
        put(&tile.halves[0][place][n], _mm256_max_ps(numbers[i], zero));
        put(&tile.halves[1][place][n], _mm256_min_ps(numbers[i], zero));
        const __m256i field = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(numbers[i]), 23), field_mask);
        largest_field = _mm256_max_epi32(largest_field, field);
        const __m256i exponent = _mm256_max_epi32(_mm256_sub_epi32(field, _mm256_set1_epi32(127)), smallest);
        const __m256i is_zero = _mm256_castps_si256(_mm256_cmp_ps(numbers[i], zero, _CMP_EQ_OQ));
        put(&tile.exponent[place][n], _mm256_blendv_epi8(exponent, zero_exponent, is_zero));
      }
    }
  }
  alignas(32) int fields[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(fields), largest_field);
  int largest = 0;
  for (const int field : fields) {
    largest = field > largest ? field : largest;
  }
  return {largest - 127, largest < 255};
}

// As promote() of linear_dot.hpp, whose fused multiply-add is a library call for each number where the file is not compiled for it.
void promote_row(const PromoteRow& row, const float* t, float* f) {
  const __m256 a_scale = _mm256_set1_ps(row.a_scale);
  const __m256 b_scale = _mm256_set1_ps(row.b_scale);
  const __m256 both = _mm256_set1_ps(row.a_scale * row.b_scale);
  for (int i = 0; i < row.len; i += 8) {
    const __m256 part = _mm256_load_ps(t + i);
    const __m256 sum = _mm256_load_ps(f + i);
    switch (row.form) {
      case Promotion::Form::kFusedScalesFirst: _mm256_store_ps(f + i, _mm256_fmadd_ps(both, part, sum)); break;
      case Promotion::Form::kSeparateScalesFirst:
        _mm256_store_ps(f + i, _mm256_add_ps(sum, _mm256_mul_ps(both, part)));
        break;
      case Promotion::Form::kFusedActivationFirst:
        _mm256_store_ps(f + i, _mm256_fmadd_ps(_mm256_mul_ps(part, a_scale), b_scale, sum));
        break;
      case Promotion::Form::kSeparateActivationFirst:
        _mm256_store_ps(f + i, _mm256_add_ps(sum, _mm256_mul_ps(_mm256_mul_ps(part, a_scale), b_scale)));
        break;
    }
  }
}

}  // namespace

const StepKernels kAvx2Steps{{run<float>, fill<float>}, {run<double>, fill<double>}, promote_row};

}  // namespace reference::tensor_core
