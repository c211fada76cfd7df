// The steps of step_block.hpp for AVX-512; this file is compiled for it. Two vectors hold the sums of a tile's outputs. Even and odd
// products have sums of their own, so that eight multiply-adds are on their way at a time: each sum is a whole number of last places
// of M, and adding them up is exact.
// NOTE: no function of the standard library here (reference/simd/kernels_avx2.cpp says why).
#include <immintrin.h>

#include "reference/tensor_core/step_block.hpp"

namespace reference::tensor_core {
namespace {

constexpr int kVectors = 2;  // of a tile's outputs
constexpr int kVectorBytes = 64;

// What differs between sums in FP32 and in FP64.
template <typename Real>
struct Wide;

template <>
struct Wide<float> {
  using Numbers = __m512;
  static constexpr int kLen = 16;
  static Numbers load(const float* from) { return _mm512_load_ps(from); }
  static void store(float* to, Numbers numbers) { _mm512_store_ps(to, numbers); }
  static Numbers all(float number) { return _mm512_set1_ps(number); }
  static Numbers fused(Numbers x, Numbers w, Numbers sum) { return _mm512_fmadd_ps(x, w, sum); }
  static Numbers max(Numbers a, Numbers b) { return _mm512_max_ps(a, b); }
  static Numbers min(Numbers a, Numbers b) { return _mm512_min_ps(a, b); }
  static Numbers masked(Numbers a, __m512i mask) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), mask));
  }
  static __m512i larger(__m512i a, __m512i b) { return _mm512_max_epi8(a, b); }
  static __m512i sum(__m512i a, __m512i b) { return _mm512_add_epi8(a, b); }
  static __m512i all_exponents(int8_t exponent) { return _mm512_set1_epi8(exponent); }
  static __m512i keep_bits(int result_bits) { return _mm512_set1_epi32(static_cast<int>(~0U << (23 - result_bits))); }

  // Exponents of products k and k + 1 side by side, repeated.
  static void pair_up(const int8_t* exponents, int32_t* pairs) {
    for (int k = 0; k < kBlockProducts / 2; k += 16) {
      const __m512i words =
          _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(exponents + 2 * k)));
      _mm512_store_si512(pairs + k, _mm512_or_si512(words, _mm512_slli_epi32(words, 16)));
    }
  }

  // M of each output, from the largest exponents of its even and odd products and that of c.
  static void anchors(const StepSpan& span,
                      __m512i largest,
                      const Numbers (&c)[kVectors],
                      Numbers (&anchor)[kVectors]) {
    const __m512i words =
        _mm512_max_epi16(_mm512_srai_epi16(_mm512_slli_epi16(largest, 8), 8), _mm512_srai_epi16(largest, 8));
    const __m256i halves[kVectors] = {_mm512_castsi512_si256(words), _mm512_extracti64x4_epi64(words, 1)};
    for (int i = 0; i < kVectors; ++i) {
      // Sums of E4M3 products are normal numbers or zero, whose -127 is below every product.
      const __m512i field = _mm512_srli_epi32(_mm512_slli_epi32(_mm512_castps_si512(c[i]), 1), 24);
      const __m512i of_c = _mm512_sub_epi32(field, _mm512_set1_epi32(127));
      __m512i exponent = _mm512_max_epi32(_mm512_cvtepi16_epi32(halves[i]), of_c);
      exponent = _mm512_max_epi32(exponent, _mm512_set1_epi32(span.lowest_exponent));
      const __m512i biased = _mm512_add_epi32(exponent, _mm512_set1_epi32(23 + 127 - span.align_bits));
      anchor[i] = _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
    }
  }

  static Numbers without_subnormal_bits(const StepSpan&, Numbers sum) { return sum; }

  static void put(float* out, __m512 numbers) { _mm512_store_ps(out, numbers); }
  // Exponents of two successive products of 16 outputs.
  static void put_pair(int8_t* out, __m512i even, __m512i odd) {
    const __m512i pairs = _mm512_or_si512(_mm512_and_si512(even, _mm512_set1_epi32(0xFF)),
                                          _mm512_slli_epi32(_mm512_and_si512(odd, _mm512_set1_epi32(0xFF)), 8));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(pairs));
  }
};

template <>
struct Wide<double> {
  using Numbers = __m512d;
  static constexpr int kLen = 8;
  static Numbers load(const double* from) { return _mm512_load_pd(from); }
  static void store(double* to, Numbers numbers) { _mm512_store_pd(to, numbers); }
  static Numbers all(double number) { return _mm512_set1_pd(number); }
  static Numbers fused(Numbers x, Numbers w, Numbers sum) { return _mm512_fmadd_pd(x, w, sum); }
  static Numbers max(Numbers a, Numbers b) { return _mm512_max_pd(a, b); }
  static Numbers min(Numbers a, Numbers b) { return _mm512_min_pd(a, b); }
  static Numbers masked(Numbers a, __m512i mask) {
    return _mm512_castsi512_pd(_mm512_and_si512(_mm512_castpd_si512(a), mask));
  }
  static __m512i larger(__m512i a, __m512i b) { return _mm512_max_epi16(a, b); }
  static __m512i sum(__m512i a, __m512i b) { return _mm512_add_epi16(a, b); }
  static __m512i all_exponents(int16_t exponent) { return _mm512_set1_epi16(exponent); }
  static __m512i keep_bits(int result_bits) {
    return _mm512_set1_epi64(static_cast<int64_t>(~uint64_t{0} << (52 - result_bits)));
  }

  static void pair_up(const int16_t* exponents, int32_t* pairs) {
    for (int k = 0; k < kBlockProducts / 2; k += 16) {
      _mm512_store_si512(pairs + k, _mm512_loadu_si512(exponents + 2 * k));
    }
  }

  static void anchors(const StepSpan& span,
                      __m512i largest,
                      const Numbers (&c)[kVectors],
                      Numbers (&anchor)[kVectors]) {
    const __m512i words =
        _mm512_max_epi32(_mm512_srai_epi32(_mm512_slli_epi32(largest, 16), 16), _mm512_srai_epi32(largest, 16));
    const __m256i halves[kVectors] = {_mm512_castsi512_si256(words), _mm512_extracti64x4_epi64(words, 1)};
    for (int i = 0; i < kVectors; ++i) {
      const __m512i field = _mm512_srli_epi64(_mm512_slli_epi64(_mm512_castpd_si512(c[i]), 1), 53);
      const __m512i of_c = _mm512_max_epi64(_mm512_sub_epi64(field, _mm512_set1_epi64(1023)), _mm512_set1_epi64(-126));
      const __m512i of_products =
          _mm512_max_epi64(_mm512_cvtepi32_epi64(halves[i]), _mm512_set1_epi64(span.lowest_exponent));
      const __m512i exponent =
          _mm512_mask_max_epi64(of_products, _mm512_test_epi64_mask(field, field), of_products, of_c);
      const __m512i biased = _mm512_add_epi64(exponent, _mm512_set1_epi64(52 + 1023 - span.align_bits));
      anchor[i] = _mm512_castsi512_pd(_mm512_slli_epi64(biased, 52));
    }
  }

  // Below FP32's normal numbers the result ends at FP32's last place.
  static Numbers without_subnormal_bits(const StepSpan& span, Numbers sum) {
    const __m512i sign_bit = _mm512_set1_epi64(INT64_MIN);
    const Numbers magnitude = masked(sum, _mm512_set1_epi64(INT64_MAX));
    const __mmask8 is_subnormal = _mm512_cmp_pd_mask(magnitude, _mm512_set1_pd(0x1p-126), _CMP_LT_OQ);
    const Numbers last_place =
        _mm512_castsi512_pd(_mm512_set1_epi64(static_cast<int64_t>(52 - 126 - span.result_bits + 1023) << 52));
    const Numbers cut = _mm512_sub_pd(_mm512_add_pd(magnitude, last_place), last_place);
    const __m512i with_sign =
        _mm512_or_si512(_mm512_castpd_si512(cut), _mm512_and_si512(_mm512_castpd_si512(sum), sign_bit));
    const Numbers no_minus_zero = _mm512_add_pd(_mm512_castsi512_pd(with_sign), _mm512_setzero_pd());
    return _mm512_mask_mov_pd(sum, is_subnormal, no_minus_zero);
  }

  static void put(double* out, __m512 numbers) {
    _mm512_store_pd(out, _mm512_cvtps_pd(_mm512_castps512_ps256(numbers)));
    _mm512_store_pd(out + 8, _mm512_cvtps_pd(_mm512_extractf32x8_ps(numbers, 1)));
  }
  static void put_pair(int16_t* out, __m512i even, __m512i odd) {
    _mm512_store_si512(out,
                       _mm512_or_si512(_mm512_and_si512(even, _mm512_set1_epi32(0xFFFF)), _mm512_slli_epi32(odd, 16)));
  }
};

// Exponents of a tile as this level lays them out: [k / 2][output][k % 2].
template <typename Real>
inline const auto* pair_of(const StepTile<Real>& tile, int k) {
  return &tile.exponent[0][0] + k * StepTile<Real>::kCols;
}

// Runs under rounding toward zero, which the caller has set: hence no inlining.
template <typename Real>
__attribute__((noinline)) void run_steps(const StepSpan& span,
                                         const StepRow<Real>& x,
                                         const StepTile<Real>& tile,
                                         Real* c) {
  using W = Wide<Real>;
  using Numbers = typename W::Numbers;
  static_assert(W::kLen * kVectors == StepTile<Real>::kCols);
  alignas(kVectorBytes) int32_t exponent_pairs[kBlockProducts / 2];
  W::pair_up(x.exponent, exponent_pairs);
  const __m512i keep = W::keep_bits(span.result_bits);
  Numbers before[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    before[i] = W::load(c + W::kLen * i);
  }
  for (int begin = span.begin; begin < span.end; begin += span.step_len) {
    const int end = begin + span.step_len < span.end ? begin + span.step_len : span.end;
    __m512i largest = W::all_exponents(2 * StepReal<Real>::kZeroExponent);
    for (int k = begin; k < end; k += 2) {
      largest =
          W::larger(largest, W::sum(_mm512_load_si512(pair_of(tile, k)), _mm512_set1_epi32(exponent_pairs[k / 2])));
    }
    Numbers anchor[kVectors];
    W::anchors(span, largest, before, anchor);
    Numbers above[2][kVectors];
    Numbers below[2][kVectors];
    for (int i = 0; i < kVectors; ++i) {
      above[0][i] = anchor[i] + W::max(before[i], W::all(0));
      below[0][i] = W::min(before[i], W::all(0)) - anchor[i];
      above[1][i] = anchor[i];
      below[1][i] = -anchor[i];
    }
    for (int k = begin; k < end; k += 2) {
      for (int odd = 0; odd < 2; ++odd) {  // beyond an odd end there are zeros
        const Real number = x.value[k + odd];
        const StepOperands<Real> w = operands_of(tile, k + odd, number);
        const Numbers value = W::all(number);
        for (int i = 0; i < kVectors; ++i) {
          above[odd][i] = W::fused(value, W::load(w.to_above + W::kLen * i), above[odd][i]);
          below[odd][i] = W::fused(value, W::load(w.to_below + W::kLen * i), below[odd][i]);
        }
      }
    }
    for (int i = 0; i < kVectors; ++i) {
      const Numbers sum = (above[0][i] + below[0][i]) + (above[1][i] + below[1][i]);
      before[i] = W::masked(W::without_subnormal_bits(span, sum), keep);
    }
  }
  for (int i = 0; i < kVectors; ++i) {
    W::store(c + W::kLen * i, before[i]);
  }
}

template <typename Real>
void run(const StepSpan& span, const StepTile<Real>& tile, const StepOutputs<Real>* rows, int64_t num_rows) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | _MM_ROUND_TOWARD_ZERO);
  for (int64_t m = 0; m < num_rows; ++m) {
    run_steps<Real>(span, *rows[m].x, tile, rows[m].c);
  }
  _mm_setcsr(saved);
}

// Row r of the result is column r of the sixteen rows.
inline void transpose(__m512 (&rows)[16]) {
  __m512 pairs[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
  }
  __m512 fours[16];  // of each group of four rows: columns c, c + 4, c + 8, c + 12 for c = 0 to 3
  for (int i = 0; i < 16; i += 4) {
    fours[i] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    fours[i + 1] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
    fours[i + 2] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    fours[i + 3] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512 low_even = _mm512_shuffle_f32x4(fours[i], fours[i + 4], 0x88);  // columns i and i + 8 of rows 0 to 7
    const __m512 low_odd = _mm512_shuffle_f32x4(fours[i], fours[i + 4], 0xDD);   // i + 4 and i + 12
    const __m512 high_even = _mm512_shuffle_f32x4(fours[i + 8], fours[i + 12], 0x88);  // of rows 8 to 15
    const __m512 high_odd = _mm512_shuffle_f32x4(fours[i + 8], fours[i + 12], 0xDD);
    rows[i] = _mm512_shuffle_f32x4(low_even, high_even, 0x88);
    rows[i + 4] = _mm512_shuffle_f32x4(low_odd, high_odd, 0x88);
    rows[i + 8] = _mm512_shuffle_f32x4(low_even, high_even, 0xDD);
    rows[i + 12] = _mm512_shuffle_f32x4(low_odd, high_odd, 0xDD);
  }
}

template <typename Real>
StepRange fill(const StepNumbers& from, StepTile<Real>& tile) {
  constexpr int kSide = 16;
  const __m512i zero_exponent = _mm512_set1_epi32(StepReal<Real>::kZeroExponent);
  const __m512i smallest = _mm512_set1_epi32(from.smallest_exponent);
  const __m512 zero = _mm512_setzero_ps();
  __m512i largest_field = _mm512_setzero_si512();
  for (int n = 0; n < StepTile<Real>::kCols; n += kSide) {
    for (int k = 0; k < kBlockProducts; k += kSide) {
      __m512 numbers[kSide];
      for (int i = 0; i < kSide; ++i) {
        numbers[i] = _mm512_loadu_ps(from.numbers + (n + i) * kBlockProducts + k);
      }
      transpose(numbers);
      __m512i exponents[kSide];
      for (int i = 0; i < kSide; ++i) {
        const int place = from.places[k + i];
        Wide<Real>::put(&tile.halves[0][place][n], _mm512_max_ps(numbers[i], zero));
        Wide<Real>::put(&tile.halves[1][place][n], _mm512_min_ps(numbers[i], zero));
        const __m512i field = _mm512_srli_epi32(_mm512_slli_epi32(_mm512_castps_si512(numbers[i]), 1), 24);
        largest_field = _mm512_max_epi32(largest_field, field);
        const __m512i exponent = _mm512_max_epi32(_mm512_sub_epi32(field, _mm512_set1_epi32(127)), smallest);
        const __mmask16 is_zero = _mm512_cmp_ps_mask(numbers[i], zero, _CMP_EQ_OQ);
        exponents[i] = _mm512_mask_mov_epi32(exponent, is_zero, zero_exponent);
      }
      for (int i = 0; i < kSide; i += 2) {  // successive products stay neighbours in every order of places
        const int place = from.places[k + i];
        auto* pair = &tile.exponent[0][0] + place * StepTile<Real>::kCols + 2 * n;
        Wide<Real>::put_pair(pair, exponents[i], exponents[i + 1]);
      }
    }
  }
  const int largest = _mm512_reduce_max_epi32(largest_field);
  return {largest - 127, largest < 255};
}

// As promote() of linear_dot.hpp, whose fused multiply-add is a library call for each number where the file is not compiled for it.
void promote_row(const PromoteRow& row, const float* t, float* f) {
  const __m512 a_scale = _mm512_set1_ps(row.a_scale);
  const __m512 b_scale = _mm512_set1_ps(row.b_scale);
  const __m512 both = _mm512_set1_ps(row.a_scale * row.b_scale);
  for (int i = 0; i < row.len; i += 16) {
    const __m512 part = _mm512_load_ps(t + i);
    const __m512 sum = _mm512_load_ps(f + i);
    switch (row.form) {
      case Promotion::Form::kFusedScalesFirst: _mm512_store_ps(f + i, _mm512_fmadd_ps(both, part, sum)); break;
      case Promotion::Form::kSeparateScalesFirst:
        _mm512_store_ps(f + i, _mm512_add_ps(sum, _mm512_mul_ps(both, part)));
        break;
      case Promotion::Form::kFusedActivationFirst:
        _mm512_store_ps(f + i, _mm512_fmadd_ps(_mm512_mul_ps(part, a_scale), b_scale, sum));
        break;
      case Promotion::Form::kSeparateActivationFirst:
        _mm512_store_ps(f + i, _mm512_add_ps(sum, _mm512_mul_ps(_mm512_mul_ps(part, a_scale), b_scale)));
        break;
    }
  }
}

}  // namespace

const StepKernels kAvx512Steps{{run<float>, fill<float>}, {run<double>, fill<double>}, nullptr, promote_row};

}  // namespace reference::tensor_core
