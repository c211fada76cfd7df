// The loop of step_block.hpp over StepTile<double>, compiled once for each level of vector instructions, in the compilers' own vectors of
// 32 bytes. Few units need it, so no level has more than its compiler finds.
// NOTE: no function of the standard library here (reference/simd/kernels_avx2.cpp says why).

typedef double Doubles __attribute__((vector_size(32), may_alias));
typedef int64_t Longs __attribute__((vector_size(32)));
typedef int16_t Shorts __attribute__((vector_size(32), may_alias));

inline double power_of_two(int exponent) {
  const int64_t bits = static_cast<int64_t>(exponent + 1023) << 52;
  double value = 0;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// The sum from M and the one from -M to which the products with element k of x go: which half of the weights each takes.
struct WideOperands {
  const double* to_above;
  const double* to_below;
};
inline WideOperands operands_of(const StepTile<double>& tile, int k, double x) {
  constexpr int64_t kHalf = kBlockProducts * StepTile<double>::kCols;
  int64_t bits = 0;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  const int64_t swap = bits >> 63 & kHalf;
  const double* first = tile.halves[0][k];
  return {first + swap, first + (kHalf - swap)};
}

// M of each output, from the largest exponent of its products, that of c, and the lowest.
inline void align_to(const StepSpan& span, const int16_t* largest, const double* c, double* anchor) {
  for (int n = 0; n < StepTile<double>::kCols; ++n) {
    int64_t bits = 0;
    __builtin_memcpy(&bits, &c[n], sizeof(bits));
    const int64_t field = (bits >> 52) & 2047;
    const int64_t of_c = field == 0 ? -20000 : field - 1023 < -126 ? -126 : field - 1023;
    int64_t e = largest[n] > of_c ? largest[n] : of_c;
    e = e > span.lowest_exponent ? e : span.lowest_exponent;
    bits = (e - span.align_bits + 52 + 1023) << 52;
    __builtin_memcpy(&anchor[n], &bits, sizeof(bits));
  }
}

// The exact sum cut to the result's fraction bits, and to FP32's last place below its normal numbers.
inline Doubles cut(const StepSpan& span, Doubles sum) {
  const Longs sign = (Longs)sum & (Longs{} + INT64_MIN);
  auto magnitude = (Doubles)((Longs)sum ^ sign);
  const double last_place = power_of_two(52 - 126 - span.result_bits);
  magnitude = magnitude < 0x1p-126 ? (magnitude + last_place) - last_place : magnitude;
  const int64_t keep = ~((int64_t{1} << (52 - span.result_bits)) - 1);
  return (Doubles)(((Longs)magnitude & (Longs{} + keep)) | sign) + Doubles{};  // no minus zero
}

inline void add_wide_steps(const StepSpan& span, const StepRow<double>& x, const StepTile<double>& tile, double* c) {
  constexpr int kCols = StepTile<double>::kCols;
  constexpr int kPacks = 4;
  constexpr int kPackLen = kCols / kPacks;
  for (int begin = span.begin; begin < span.end; begin += span.step_len) {
    const int end = begin + span.step_len < span.end ? begin + span.step_len : span.end;
    Shorts largest = Shorts{} + static_cast<int16_t>(2 * kZeroExponent);
    for (int k = begin; k < end; ++k) {
      const Shorts sum = load<Shorts>(tile.exponent[k]) + x.exponent[k];
      largest = sum > largest ? sum : largest;
    }
    alignas(32) int16_t largest_of[kCols];
    store(largest_of, largest);
    alignas(32) double anchor[kCols];
    align_to(span, largest_of, c, anchor);
    Doubles above[kPacks];
    Doubles below[kPacks];
    for (int i = 0; i < kPacks; ++i) {
      const auto before = load<Doubles>(c + kPackLen * i);
      above[i] = load<Doubles>(anchor + kPackLen * i) + (before > 0 ? before : Doubles{});
      below[i] = (before > 0 ? Doubles{} : before) - load<Doubles>(anchor + kPackLen * i);
    }
    for (int k = begin; k < end; ++k) {
      const WideOperands w = operands_of(tile, k, x.value[k]);
      const Doubles value = x.value[k] - Doubles{};
#pragma GCC unroll 4
      for (int i = 0; i < kPacks; ++i) {  // products are exact, so this has the bits of a fused step
        above[i] += value * load<Doubles>(w.to_above + kPackLen * i);
        below[i] += value * load<Doubles>(w.to_below + kPackLen * i);
      }
    }
    for (int i = 0; i < kPacks; ++i) {
      store(c + kPackLen * i, cut(span, above[i] + below[i]));
    }
  }
}

// Runs under rounding toward zero, which the caller has set: hence no inlining.
__attribute__((noinline)) inline void run_wide_steps(const StepSpan& span,
                                                     const StepTile<double>& tile,
                                                     const StepOutputs<double>* rows,
                                                     int64_t num_rows) {
  for (int64_t m = 0; m < num_rows; ++m) {
    add_wide_steps(span, *rows[m].x, tile, rows[m].c);
  }
}

StepRange fill_wide(const StepNumbers& from, StepTile<double>& tile) {
  int largest_field = 0;
  for (int k = 0; k < kBlockProducts; ++k) {
    const int place = from.places[k];
    for (int n = 0; n < StepTile<double>::kCols; ++n) {
      const float number = from.numbers[n * kBlockProducts + k];
      uint32_t bits = 0;
      __builtin_memcpy(&bits, &number, sizeof(bits));
      const int field = static_cast<int>(bits >> 23 & 0xFF);
      largest_field = field > largest_field ? field : largest_field;
      tile.halves[0][place][n] = number > 0 ? number : 0;
      tile.halves[1][place][n] = number < 0 ? number : 0;
      const int exponent = field - 127 > from.smallest_exponent ? field - 127 : from.smallest_exponent;
      tile.exponent[place][n] = static_cast<int16_t>(number == 0 ? kZeroExponent : exponent);
    }
  }
  return {.largest_exponent = largest_field - 127, .finite = largest_field < 255};
}
