// The steps of step_block.hpp for AVX2 and FMA; this file is compiled for them. Four vectors hold the sums of a tile's outputs.
// NOTE: no function of the standard library here (reference/simd/kernels_avx2.cpp says why).
#include <immintrin.h>

#include "reference/tensor_core/step_block.hpp"

namespace reference::tensor_core {
namespace {

constexpr int kVectors = 4;  // of a tile's outputs

// What differs between sums in FP32 and in FP64.
template <typename Real>
struct Wide;

template <>
struct Wide<float> {
  using Numbers = __m256;
  static constexpr int kLen = 8;
  static Numbers load(const float* from) { return _mm256_load_ps(from); }
  static void store(float* to, Numbers numbers) { _mm256_store_ps(to, numbers); }
  static Numbers every_lane(float number) { return _mm256_set1_ps(number); }
  static Numbers fused(Numbers x, Numbers w, Numbers sum) { return _mm256_fmadd_ps(x, w, sum); }
  static Numbers max(Numbers a, Numbers b) { return _mm256_max_ps(a, b); }
  static Numbers min(Numbers a, Numbers b) { return _mm256_min_ps(a, b); }
  static __m256i larger(__m256i a, __m256i b) { return _mm256_max_epi8(a, b); }
  static __m256i sum(__m256i a, __m256i b) { return _mm256_add_epi8(a, b); }
  static __m256i all_exponents(int exponent) { return _mm256_set1_epi8(static_cast<int8_t>(exponent)); }

  // M of each output, from the largest exponents of its products and that of c.
  static void anchors(const StepSpan& span,
                      __m256i largest,
                      const Numbers (&c)[kVectors],
                      Numbers (&anchor)[kVectors]) {
    // Below -128 there is no product, and c, a sum of E4M3 products, is a normal number or zero, whose field counts as -127.
    largest = larger(largest, all_exponents(span.lowest_exponent > -128 ? span.lowest_exponent : -128));
    const __m128i halves[2] = {_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1)};
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256i last_place = _mm256_set1_epi32(23 - span.align_bits);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const __m128i bytes = i % 2 == 0 ? halves[i / 2] : _mm_srli_si128(halves[i / 2], 8);
      const __m256i of_products = _mm256_add_epi32(_mm256_cvtepi8_epi32(bytes), bias);
      const __m256i of_c = _mm256_srli_epi32(_mm256_slli_epi32(_mm256_castps_si256(c[i]), 1), 24);
      const __m256i field = _mm256_add_epi32(_mm256_max_epi32(of_products, of_c), last_place);
      anchor[i] = _mm256_castsi256_ps(_mm256_slli_epi32(field, 23));
    }
  }

  // Toward zero: of a sign and a magnitude, bits of the magnitude are dropped.
  static void cut(const StepSpan& span, Numbers (&sums)[kVectors]) {
    const __m256 keep = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(~0U << (23 - span.result_bits))));
#pragma GCC unroll 4
    for (Numbers& sum : sums) {
      sum = _mm256_and_ps(sum, keep);
    }
  }
};

template <>
struct Wide<double> {
  using Numbers = __m256d;
  static constexpr int kLen = 4;
  static Numbers load(const double* from) { return _mm256_load_pd(from); }
  static void store(double* to, Numbers numbers) { _mm256_store_pd(to, numbers); }
  static Numbers every_lane(double number) { return _mm256_set1_pd(number); }
  static Numbers fused(Numbers x, Numbers w, Numbers sum) { return _mm256_fmadd_pd(x, w, sum); }
  static Numbers max(Numbers a, Numbers b) { return _mm256_max_pd(a, b); }
  static Numbers min(Numbers a, Numbers b) { return _mm256_min_pd(a, b); }
  static __m256i larger(__m256i a, __m256i b) { return _mm256_max_epi16(a, b); }
  static __m256i sum(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
  static __m256i all_exponents(int exponent) { return _mm256_set1_epi16(static_cast<int16_t>(exponent)); }
  static Numbers power_of_two(int exponent) {
    return _mm256_castsi256_pd(_mm256_set1_epi64x(static_cast<int64_t>(exponent + 1023) << 52));
  }
  static Numbers magnitude(Numbers numbers) {
    return _mm256_and_pd(numbers, _mm256_castsi256_pd(_mm256_set1_epi64x(INT64_MAX)));
  }

  static void anchors(const StepSpan& span,
                      __m256i largest,
                      const Numbers (&c)[kVectors],
                      Numbers (&anchor)[kVectors]) {
    largest = larger(largest, all_exponents(span.lowest_exponent));
    const int last_place = 52 - span.align_bits;
    // The upper quarter of 2^(E + last_place) as a double.
    const __m256i quarters = _mm256_slli_epi16(sum(largest, all_exponents(1023 + last_place)), 4);
    const __m128i halves[2] = {_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1)};
    const Numbers power_bits = _mm256_castsi256_pd(_mm256_set1_epi64x(int64_t{0x7FF} << 52));
    const Numbers smallest_of_c = power_of_two(-126);
    const Numbers to_anchor = power_of_two(last_place);
    const Numbers zero = _mm256_setzero_pd();
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const __m128i words = i % 2 == 0 ? halves[i / 2] : _mm_srli_si128(halves[i / 2], 8);
      const Numbers of_products = _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_cvtepu16_epi64(words), 48));
      const Numbers of_c = max(_mm256_and_pd(c[i], power_bits), smallest_of_c);
      const Numbers of_c_if_any = _mm256_and_pd(of_c, _mm256_cmp_pd(c[i], zero, _CMP_NEQ_OQ));
      anchor[i] = max(of_products, _mm256_mul_pd(of_c_if_any, to_anchor));
    }
  }

  static void cut(const StepSpan& span, Numbers (&sums)[kVectors]) {
    const Numbers smallest_normal = power_of_two(-126);
    Numbers smallest = magnitude(sums[0]);
#pragma GCC unroll 4
    for (int i = 1; i < kVectors; ++i) {
      smallest = min(smallest, magnitude(sums[i]));
    }
    if (_mm256_movemask_pd(_mm256_cmp_pd(smallest, smallest_normal, _CMP_LT_OQ)) != 0) {
      cut_subnormal_bits(span, sums);
    }
    const Numbers keep =
        _mm256_castsi256_pd(_mm256_set1_epi64x(static_cast<int64_t>(~uint64_t{0} << (52 - span.result_bits))));
#pragma GCC unroll 4
    for (Numbers& sum : sums) {
      sum = _mm256_and_pd(sum, keep);
    }
  }

  // Below FP32's normal numbers the result ends at FP32's last place, and where nothing is left it is plus zero.
  static void cut_subnormal_bits(const StepSpan& span, Numbers (&sums)[kVectors]) {
    const Numbers last_place = power_of_two(52 - 126 - span.result_bits);
    for (Numbers& sum : sums) {
      const Numbers is_subnormal = _mm256_cmp_pd(magnitude(sum), power_of_two(-126), _CMP_LT_OQ);
      const Numbers cut = _mm256_sub_pd(_mm256_add_pd(magnitude(sum), last_place), last_place);
      const Numbers sign = _mm256_and_pd(sum, _mm256_castsi256_pd(_mm256_set1_epi64x(INT64_MIN)));
      const Numbers with_sign = _mm256_add_pd(_mm256_or_pd(cut, sign), _mm256_setzero_pd());
      sum = _mm256_blendv_pd(sum, with_sign, is_subnormal);
    }
  }
};

// The step over products [begin, end).
template <typename Real>
__attribute__((always_inline)) inline void add_step(
    const StepSpan& span, const StepTile<Real>& tile, int begin, int end, const StepRow<Real>& x, Real* c) {
  using W = Wide<Real>;
  using Numbers = typename W::Numbers;
  static_assert(W::kLen * kVectors == StepTile<Real>::kCols);
  __m256i largest = W::all_exponents(2 * StepReal<Real>::kZeroExponent);
  for (int k = begin; k < end; k += 2) {
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {  // beyond an odd end there are zeros
      const __m256i of_weights = _mm256_load_si256(reinterpret_cast<const __m256i*>(tile.exponent[k + odd]));
      largest = W::larger(largest, W::sum(of_weights, W::all_exponents(x.exponent[k + odd])));
    }
  }
  Numbers before[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    before[i] = W::load(c + W::kLen * i);
  }
  Numbers anchor[kVectors];
  W::anchors(span, largest, before, anchor);
  Numbers above[kVectors];
  Numbers below[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    above[i] = anchor[i] + W::max(before[i], W::every_lane(0));
    below[i] = W::min(before[i], W::every_lane(0)) - anchor[i];
  }
  for (int k = begin; k < end; k += 2) {
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      const StepOperands<Real> w = operands_of(tile, k + odd, x.value[k + odd]);
      const Numbers value = W::every_lane(x.value[k + odd]);
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        above[i] = W::fused(value, W::load(w.to_above + W::kLen * i), above[i]);
        below[i] = W::fused(value, W::load(w.to_below + W::kLen * i), below[i]);
      }
    }
  }
  Numbers sums[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    sums[i] = above[i] + below[i];
  }
  W::cut(span, sums);
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    W::store(c + W::kLen * i, sums[i]);
  }
}

// Runs under rounding toward zero, which the caller has set: hence no inlining.
template <typename Real>
__attribute__((noinline)) void run_steps(const StepSpan& span,
                                         const StepTile<Real>& tile,
                                         const StepOutputs<Real>* rows,
                                         int64_t num_rows) {
  for (int begin = span.begin; begin < span.end; begin += span.step_len) {
    const int end = begin + span.step_len < span.end ? begin + span.step_len : span.end;
    for (int64_t m = 0; m < num_rows; ++m) {
      add_step(span, tile, begin, end, *rows[m].x, rows[m].c);
    }
  }
}

template <typename Real>
void run(const StepSpan& span, const StepTile<Real>& tile, const StepOutputs<Real>* rows, int64_t num_rows) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | _MM_ROUND_TOWARD_ZERO);
  run_steps<Real>(span, tile, rows, num_rows);
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

// Sixteen rows of sixteen bytes in each half of the vectors: row r of the result is column r of them.
inline void transpose_bytes(__m256i (&rows)[16]) {
  // Each round moves one more bit of a byte's column into the number of its row.
  for (int round = 0; round < 4; ++round) {
    __m256i next[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      next[2 * i] = _mm256_unpacklo_epi8(rows[i], rows[i + 8]);
      next[2 * i + 1] = _mm256_unpackhi_epi8(rows[i], rows[i + 8]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      rows[i] = next[i];
    }
  }
}

// The exponents of 32 codes as the unit sees them.
inline __m256i exponents_of_e4m3(__m256i magnitudes) {
  const __m128i of_field = _mm_setr_epi8(-6, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8);
  constexpr int kSubnormal = -6;
  const __m256i fields = _mm256_and_si256(_mm256_srli_epi16(magnitudes, 3), _mm256_set1_epi8(15));
  const __m256i exponents = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(of_field), fields);
  const __m256i is_zero = _mm256_cmpeq_epi8(magnitudes, _mm256_setzero_si256());
  const __m256i below = _mm256_set1_epi8(static_cast<int8_t>(StepReal<float>::kZeroExponent - kSubnormal));
  return _mm256_add_epi8(exponents, _mm256_and_si256(is_zero, below));
}

// Positive and negative halves of eight numbers. E4M3 in the places of binary16 is 2^-8 of itself.
inline void put_halves(__m128i binary16, float* positive, float* negative) {
  const __m256 numbers = _mm256_mul_ps(_mm256_cvtph_ps(binary16), _mm256_set1_ps(256));
  _mm256_store_ps(positive, _mm256_max_ps(numbers, _mm256_setzero_ps()));
  _mm256_store_ps(negative, _mm256_min_ps(numbers, _mm256_setzero_ps()));
}

StepRange fill_from_e4m3(const uint8_t* codes, int64_t stride, StepTile<float>& tile) {
  constexpr int kSide = 16;
  static_assert(StepTile<float>::kCols == 2 * kSide);
  __m256i largest = _mm256_setzero_si256();
  for (int first = 0; first < kBlockProducts; first += kSide) {
    __m256i columns[kSide];
    for (int i = 0; i < kSide; ++i) {
      const auto* row = reinterpret_cast<const __m128i*>(codes + i * stride + first);
      const auto* lower_row = reinterpret_cast<const __m128i*>(codes + (i + kSide) * stride + first);
      columns[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(row)), _mm_loadu_si128(lower_row), 1);
    }
    transpose_bytes(columns);
    for (int i = 0; i < kSide; ++i) {
      const int k = first + i;
      const __m256i magnitudes = _mm256_and_si256(columns[i], _mm256_set1_epi8(0x7F));
      largest = _mm256_max_epi8(largest, magnitudes);
      _mm256_store_si256(reinterpret_cast<__m256i*>(tile.exponent[k]), exponents_of_e4m3(magnitudes));
      for (int upper = 0; upper < 2; ++upper) {  // eight outputs of each half
        const __m256i words = upper == 0 ? _mm256_unpacklo_epi8(_mm256_setzero_si256(), columns[i])
                                         : _mm256_unpackhi_epi8(_mm256_setzero_si256(), columns[i]);
        const __m256i binary16 =
            _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
        float* positive = tile.halves[0][k] + 8 * upper;
        float* negative = tile.halves[1][k] + 8 * upper;
        put_halves(_mm256_castsi256_si128(binary16), positive, negative);
        put_halves(_mm256_extracti128_si256(binary16, 1), positive + kSide, negative + kSide);
      }
    }
  }
  alignas(32) int8_t magnitudes[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(magnitudes), largest);
  int magnitude = 0;
  for (const int8_t of_one : magnitudes) {
    magnitude = of_one > magnitude ? of_one : magnitude;
  }
  constexpr int kNan = 0x7F;
  return {.largest_exponent = (magnitude >> 3) - 7, .finite = magnitude < kNan};
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

const StepKernels kAvx2Steps{{run<float>, fill<float>}, {run<double>, fill<double>}, fill_from_e4m3, promote_row};

}  // namespace reference::tensor_core
