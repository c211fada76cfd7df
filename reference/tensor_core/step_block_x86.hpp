// What AVX2 and AVX-512 share beside the loops of step_block_bodies.hpp, which this includes: unpacking weights, with vectors of 32 bytes,
// and scales. Included inside the anonymous namespace of a file that is compiled for either of them.

inline Bytes difference(Bytes a, Bytes b) {
  return (Bytes)_mm256_subs_epu8((__m256i)a, (__m256i)b);
}
inline bool all_equal(Bytes a, Bytes b) {
  const __m256i different = _mm256_xor_si256((__m256i)a, (__m256i)b);
  return _mm256_testz_si256(different, different) != 0;
}

#include "reference/tensor_core/step_block_bodies.hpp"
#include "reference/tensor_core/step_block_floor_bodies.hpp"
#include "reference/tensor_core/step_block_wide_bodies.hpp"

template <typename Real>
void run(const StepSpan& span, const StepTile<Real>& tile, const StepOutputs<Real>* rows, int64_t num_rows) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | _MM_ROUND_TOWARD_ZERO);
  if constexpr (sizeof(Real) == 4) {
    const auto steps =
        tile.has_last_places && fits_floor(span.step_len, span.align_bits) ? run_floor_steps : run_integer_steps;
    steps(span, tile, rows, num_rows);
  } else {
    run_wide_steps(span, tile, rows, num_rows);
  }
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

inline void store_bytes(uint8_t* out, __m256i numbers) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(words, words));
}

// The smallest and largest exponents of a tile, of 32 outputs at a time; those of zeros, which are 0, do not count as small.
class Extremes {
 public:
  void add(__m256i exponents) {
    largest_ = _mm256_max_epu8(largest_, exponents);
    smallest_less_one_ = _mm256_min_epu8(smallest_less_one_, _mm256_sub_epi8(exponents, _mm256_set1_epi8(1)));
  }
  [[nodiscard]] StepRange range(StepTile<float>& tile) const {
    alignas(32) uint8_t largest[32];
    alignas(32) uint8_t smallest_less_one[32];
    _mm256_store_si256(reinterpret_cast<__m256i*>(largest), largest_);
    _mm256_store_si256(reinterpret_cast<__m256i*>(smallest_less_one), smallest_less_one_);
    int high = 0;
    int low = 254;
    for (int i = 0; i < 32; ++i) {
      high = largest[i] > high ? largest[i] : high;
      low = smallest_less_one[i] < low ? smallest_less_one[i] : low;
    }
    tile.smallest_exponent = low + 1;
    return {.largest_exponent = high - 127, .finite = high < 255};
  }

 private:
  __m256i largest_ = _mm256_setzero_si256();
  __m256i smallest_less_one_ = _mm256_set1_epi8(-1);
};

StepRange fill_narrow(const StepNumbers& from, StepTile<float>& tile) {
  const __m256i smallest = _mm256_set1_epi32(from.smallest_exponent + 127);
  for (int k = 0; k < kBlockProducts; k += 8) {
    for (int n = 0; n < kColsOfTile; n += 8) {
      __m256 numbers[8];
      for (int i = 0; i < 8; ++i) {
        numbers[i] = _mm256_loadu_ps(from.numbers + (n + i) * kBlockProducts + k);
      }
      transpose(numbers);
      for (int i = 0; i < 8; ++i) {
        const int place = from.places[k + i];
        _mm256_store_ps(&tile.weight[place][n], numbers[i]);
        const __m256i magnitude = _mm256_slli_epi32(_mm256_castps_si256(numbers[i]), 1);
        const __m256i is_zero = _mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256());
        const __m256i exponent = _mm256_max_epi32(_mm256_srli_epi32(magnitude, 24), smallest);
        store_bytes(&tile.exponent[place][n], _mm256_andnot_si256(is_zero, exponent));
      }
    }
  }
  tile.has_last_places = false;
  Extremes extremes;
  for (const auto& exponents : tile.exponent) {
    extremes.add(_mm256_load_si256(reinterpret_cast<const __m256i*>(exponents)));
  }
  return extremes.range(tile);
}

// Codes of a tile, one row behind the other: rows of a matrix often lie a multiple of 4 KiB apart, and then few of them find room in
// the first cache. Those of the next block are asked for.
template <typename Code>
struct alignas(64) TileCodes {
  Code codes[kColsOfTile][kBlockProducts];

  void copy(const Code* from, int64_t stride) {
    constexpr int kBytes = kBlockProducts * sizeof(Code);
    for (int n = 0; n < kColsOfTile; ++n) {
      const char* row = reinterpret_cast<const char*>(from + n * stride);
      auto* to = reinterpret_cast<__m256i*>(codes[n]);
#pragma GCC unroll 8
      for (int i = 0; i < kBytes / 32; ++i) {
        _mm256_store_si256(to + i, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row) + i));
      }
#pragma GCC unroll 4
      for (int line = 0; line < kBytes; line += 64) {
        _mm_prefetch(row + kBytes + line, _MM_HINT_T0);
      }
    }
  }
  // 16 bytes of two rows, four outputs apart.
  [[nodiscard]] __m256i of_two(int n, int k) const {
    const auto* lower = reinterpret_cast<const __m128i*>(&codes[n][k]);
    const auto* upper = reinterpret_cast<const __m128i*>(&codes[n + 4][k]);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_load_si128(lower)), _mm_load_si128(upper), 1);
  }
};

// Numbers whose upper halves are the words: outputs 0 to 3 and 8 to 11 of sixteen lie in the lower half of them, so that unpacking within
// halves puts them in order.
inline void store_numbers(float* out, __m256i words) {
  const __m256i zero = _mm256_setzero_si256();
  _mm256_store_si256(reinterpret_cast<__m256i*>(out), _mm256_unpacklo_epi16(zero, words));
  _mm256_store_si256(reinterpret_cast<__m256i*>(out + 8), _mm256_unpackhi_epi16(zero, words));
}
// The same of 32 outputs as bytes.
inline __m256i in_order(__m256i bytes) {
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// In each half of the vectors, kSide rows of as many codes of 16 / kSide bytes: row r of the result is column r of them.
template <int kSide>
inline void transpose_codes(__m256i (&rows)[kSide]) {
  // Each round moves one more bit of a code's column into the number of its row.
  for (int round = 1; round < kSide; round *= 2) {
    __m256i next[kSide];
#pragma GCC unroll 8
    for (int i = 0; i < kSide / 2; ++i) {
      const __m256i other = rows[i + kSide / 2];
      next[2 * i] = kSide == 16 ? _mm256_unpacklo_epi8(rows[i], other) : _mm256_unpacklo_epi16(rows[i], other);
      next[2 * i + 1] = kSide == 16 ? _mm256_unpackhi_epi8(rows[i], other) : _mm256_unpackhi_epi16(rows[i], other);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) {
      rows[i] = next[i];
    }
  }
}

inline __m256i sixteen_bytes(const uint8_t (&bytes)[16]) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}

template <bool kLastPlaces>
__attribute__((always_inline)) inline StepRange fill_from_e4m3(const uint8_t* codes,
                                                               int64_t stride,
                                                               StepTile<float>& tile) {
  // The exponents of the codes' fields, and the BF16 numbers of subnormal codes, which are multiples of 2^-9.
  static constexpr uint8_t kExponents[16] = {
      121, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135};
  static constexpr uint8_t kUpperBytes[16] = {0, 0x3B, 0x3B, 0x3B, 0x3C, 0x3C, 0x3C, 0x3C};
  static constexpr uint8_t kLowerBytes[16] = {0, 0x00, 0x80, 0xC0, 0x00, 0x20, 0x40, 0x60};
  // The lowest bit that is set, of 8 + m where m is 0, above the last bit: 0 to 3; less 3 and the exponents' 127.
  static constexpr uint8_t kLowestBits[16] = {129, 126, 127, 126, 128, 126, 127, 126};
  const __m256i of_field = sixteen_bytes(kExponents);
  const __m256i lowest_bits = sixteen_bytes(kLowestBits);
  const __m256i no_place = _mm256_set1_epi8(kNoPlace);
  const __m256i upper_of_subnormal = sixteen_bytes(kUpperBytes);
  const __m256i lower_of_subnormal = sixteen_bytes(kLowerBytes);
  const __m256i nibble = _mm256_set1_epi8(15);
  constexpr int kSide = 16;
  TileCodes<uint8_t> block;
  block.copy(codes, stride);
  Extremes extremes;
  __m256i largest = _mm256_setzero_si256();
  for (int first = 0; first < kBlockProducts; first += kSide) {
    __m256i columns[kSide];
    for (int i = 0; i < kSide; ++i) {
      columns[i] = block.of_two(i % 4 + i / 4 * 8, first);
    }
    transpose_codes(columns);
    for (int i = 0; i < kSide; ++i) {
      const int k = first + i;
      const __m256i magnitudes = _mm256_and_si256(columns[i], _mm256_set1_epi8(0x7F));
      largest = _mm256_max_epi8(largest, magnitudes);
      const __m256i is_zero = _mm256_cmpeq_epi8(magnitudes, _mm256_setzero_si256());
      const __m256i fields = _mm256_and_si256(_mm256_srli_epi16(magnitudes, 3), nibble);
      const __m256i exponents = _mm256_andnot_si256(is_zero, _mm256_shuffle_epi8(of_field, fields));
      extremes.add(exponents);
      _mm256_store_si256(reinterpret_cast<__m256i*>(tile.exponent[k]), in_order(exponents));
      if (kLastPlaces) {
        const __m256i fraction = _mm256_and_si256(magnitudes, _mm256_set1_epi8(7));
        const __m256i places_of_others = _mm256_add_epi8(exponents, _mm256_shuffle_epi8(lowest_bits, fraction));
        const __m256i places = _mm256_blendv_epi8(places_of_others, no_place, is_zero);
        const __m256i of_negative = _mm256_blendv_epi8(no_place, places, columns[i]);
        const __m256i of_positive = _mm256_blendv_epi8(places, no_place, columns[i]);
        _mm256_store_si256(reinterpret_cast<__m256i*>(tile.last_place[k][0]), in_order(of_negative));
        _mm256_store_si256(reinterpret_cast<__m256i*>(tile.last_place[k][1]), in_order(of_positive));
      }
      // A normal code is a BF16 number, shifted and with another bias.
      const __m256i is_subnormal = _mm256_cmpgt_epi8(_mm256_set1_epi8(8), magnitudes);
      const __m256i upper =
          _mm256_add_epi8(_mm256_and_si256(_mm256_srli_epi16(magnitudes, 4), nibble), _mm256_set1_epi8(0x3C));
      const __m256i lower = _mm256_slli_epi16(_mm256_and_si256(magnitudes, nibble), 4);
      const __m256i sign = _mm256_and_si256(columns[i], _mm256_set1_epi8(static_cast<int8_t>(0x80)));
      const __m256i upper_bytes = _mm256_or_si256(
          sign, _mm256_blendv_epi8(upper, _mm256_shuffle_epi8(upper_of_subnormal, magnitudes), is_subnormal));
      const __m256i lower_bytes =
          _mm256_blendv_epi8(lower, _mm256_shuffle_epi8(lower_of_subnormal, magnitudes), is_subnormal);
      store_numbers(tile.weight[k], _mm256_unpacklo_epi8(lower_bytes, upper_bytes));
      store_numbers(tile.weight[k] + 16, _mm256_unpackhi_epi8(lower_bytes, upper_bytes));
    }
  }
  tile.has_last_places = kLastPlaces;
  const __m256i is_nan = _mm256_cmpeq_epi8(largest, _mm256_set1_epi8(0x7F));
  const StepRange range = extremes.range(tile);
  return {.largest_exponent = range.largest_exponent, .finite = _mm256_testz_si256(is_nan, is_nan) != 0};
}

StepRange fill_from_e4m3(const uint8_t* codes, int64_t stride, bool with_last_places, StepTile<float>& tile) {
  return with_last_places ? fill_from_e4m3<true>(codes, stride, tile) : fill_from_e4m3<false>(codes, stride, tile);
}

// Exponents of sixteen BF16 numbers as words: that of a subnormal number is the smallest, 1.
inline __m256i exponents_of_bf16(__m256i codes) {
  const __m256i magnitudes = _mm256_slli_epi16(codes, 1);
  const __m256i is_zero = _mm256_cmpeq_epi16(magnitudes, _mm256_setzero_si256());
  const __m256i smallest = _mm256_add_epi16(is_zero, _mm256_set1_epi16(1));
  return _mm256_max_epi16(_mm256_srli_epi16(magnitudes, 8), smallest);
}

StepRange fill_from_bf16(const uint16_t* codes, int64_t stride, StepTile<float>& tile) {
  constexpr int kSide = 8;
  tile.has_last_places = false;
  TileCodes<uint16_t> block;
  block.copy(codes, stride);
  Extremes extremes;
  for (int first = 0; first < kBlockProducts; first += kSide) {
    __m256i columns[2][kSide];  // of outputs 0 to 15 and of the others
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < kSide; ++i) {
        columns[half][i] = block.of_two(16 * half + i % 4 + i / 4 * 8, first);
      }
      transpose_codes(columns[half]);
    }
    for (int i = 0; i < kSide; ++i) {
      const int k = first + i;
      store_numbers(tile.weight[k], columns[0][i]);
      store_numbers(tile.weight[k] + 16, columns[1][i]);
      const __m256i exponents = _mm256_packus_epi16(exponents_of_bf16(columns[0][i]), exponents_of_bf16(columns[1][i]));
      extremes.add(exponents);
      _mm256_store_si256(reinterpret_cast<__m256i*>(tile.exponent[k]), in_order(exponents));
    }
  }
  return extremes.range(tile);
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

constexpr StepKernels kX86Steps{
    {run<float>, fill_narrow}, {run<double>, fill_wide}, fill_from_e4m3, fill_from_bf16, promote_row};
