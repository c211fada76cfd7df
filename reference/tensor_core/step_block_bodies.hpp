// The loops of step_block.hpp over StepTile<float>, compiled once for each level of vector instructions. The including file has defined,
// in its anonymous namespace: the types of step_block_packs.hpp, difference(Bytes a, Bytes b), which is 0 where b is larger,
// all_equal(Bytes, Bytes), fields_of(const float* numbers), the exponents' fields of kColsOfTile numbers, widened(const uint8_t*), the next
// bytes as Ints, and any_negative(Ints).
// NOTE: no function of the standard library here (reference/simd/kernels_avx2.cpp says why).

constexpr int kRowsTogether = 16;  // so that exponents of one row are looked at while another one's products are added

template <typename Vec, typename Element>
__attribute__((always_inline)) inline Vec load(const Element* from) {
  return *reinterpret_cast<const Vec*>(from);
}
template <typename Vec, typename Element>
__attribute__((always_inline)) inline void store(Element* to, Vec vec) {
  *reinterpret_cast<Vec*>(to) = vec;
}

// One output of a step by the words of step.hpp, for terms of any size.
__attribute__((noinline)) inline float step_of_one(
    const StepSpan& span, const StepTile<float>& tile, int begin, int end, const StepRow<float>& x, float c, int n) {
  const auto power_of_two = [](int exponent) {
    const int64_t bits = static_cast<int64_t>(exponent + 1023) << 52;
    double value = 0;
    __builtin_memcpy(&value, &bits, sizeof(value));
    return value;
  };
  int largest = span.lowest_exponent;
  for (int k = begin; k < end; ++k) {
    if (x.value[k] * 1.0 * tile.weight[k][n] != 0) {
      const int of_x = x.largest_exponent - x.depth[k] - 127;
      const int exponent = of_x + tile.exponent[k][n] - 127;
      largest = exponent > largest ? exponent : largest;
    }
  }
  if (c != 0) {
    uint32_t bits = 0;
    __builtin_memcpy(&bits, &c, sizeof(bits));
    const int field = static_cast<int>(bits >> 23 & 0xFF);
    const int exponent = (field > 1 ? field : 1) - 127;
    largest = exponent > largest ? exponent : largest;
  }
  const double to_integer = power_of_two(span.align_bits - largest);
  auto sum = static_cast<int64_t>(c * to_integer);
  for (int k = begin; k < end; ++k) {
    sum += static_cast<int64_t>(x.value[k] * 1.0 * tile.weight[k][n] * to_integer);
  }
  const auto result = static_cast<float>(static_cast<double>(sum) * power_of_two(largest - span.align_bits));
  uint32_t bits = 0;
  __builtin_memcpy(&bits, &result, sizeof(bits));
  bits &= ~0U << (23 - span.result_bits);
  float cut = 0;
  __builtin_memcpy(&cut, &bits, sizeof(cut));
  return cut + 0.0f;  // no minus zero
}

inline Bytes every_byte(int number) {
  return Bytes{} + static_cast<uint8_t>(number);
}
inline Bytes larger(Bytes a, Bytes b) {
  return a > b ? a : b;
}

inline void add_step_plainly(
    const StepSpan& span, const StepTile<float>& tile, int begin, int end, const StepOutputs<float>& row) {
  for (int n = 0; n < kColsOfTile; ++n) {
    row.c[n] = step_of_one(span, tile, begin, end, *row.x, row.c[n], n);
  }
}

// E + 127 of each output to `fields`. False if there is an output whose E, or 2^(F - E), does not fit.
__attribute__((always_inline)) inline bool find_exponents(const StepSpan& span,
                                                          const StepTile<float>& tile,
                                                          int begin,
                                                          int end,
                                                          const StepRow<float>& x,
                                                          const float* c,
                                                          uint8_t* fields) {
  Bytes largest = {};
  for (int k = begin; k < end; k += 2) {
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {  // beyond an odd end there are zeros
      const Bytes depth = every_byte(x.depth[k + odd]);
      largest = larger(largest, difference(load<Bytes>(tile.exponent[k + odd]), depth));
    }
  }
  // Of fields, 127 too large. A product of a tiny exponent counts as 0, as if it were zero.
  const int above = x.largest_exponent - 127;
  const Bytes of_products = difference(largest, every_byte(above < 0 ? -above : 0)) + every_byte(above > 0 ? above : 0);
  int lowest = span.align_bits > above ? span.align_bits : above;
  lowest = lowest >= span.lowest_exponent + 127 ? lowest + 1 : span.lowest_exponent + 127;
  const Bytes of_c = fields_of(c);
  const Bytes exponents = larger(of_products, of_c);
  const Bytes fitting = larger(exponents, every_byte(lowest));
  store(fields, fitting);
  if (__builtin_expect(all_equal(exponents, fitting), 1)) {
    return true;
  }
  const bool zero_is_zero = tile.smallest_exponent > x.largest_depth;
  for (int n = 0; n < kColsOfTile; ++n) {
    const bool none = zero_is_zero && largest[n] == 0 && c[n] == 0;
    if (!none && exponents[n] < lowest) {
      return false;
    }
  }
  return true;
}

__attribute__((always_inline)) inline void add_step(const StepSpan& span,
                                                    const StepTile<float>& tile,
                                                    int begin,
                                                    int end,
                                                    const StepRow<float>& x,
                                                    const uint8_t* fields,
                                                    float* c) {
  constexpr int kVectors = kColsOfTile / kVecLen < 4 ? kColsOfTile / kVecLen : 4;
  const Ints keep = Ints{} + static_cast<int32_t>(~0U << (23 - span.result_bits));
  for (int first = 0; first < kColsOfTile; first += kVectors * kVecLen) {
    Floats scale[kVectors];
    Ints sums[kVectors] = {};
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      scale[i] = (Floats)((254 + span.align_bits - widened(fields + first + kVecLen * i)) << 23);  // 2^(F - E)
    }
    for (int k = begin; k < end; k += 2) {
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd) {
        const Floats value = x.value[k + odd] - Floats{};
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) {
          const auto product = value * load<Floats>(tile.weight[k + odd] + first + kVecLen * i);
          sums[i] += __builtin_convertvector(product * scale[i], Ints);
        }
      }
    }
    Ints overflow = {};
    Floats results[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const Ints of_c = __builtin_convertvector(load<Floats>(c + first + kVecLen * i) * scale[i], Ints);
      const Ints total = sums[i] + of_c;
      overflow |= (sums[i] ^ total) & (of_c ^ total);
      const auto from_integer = (Floats)((254 << 23) - (Ints)scale[i]);
      results[i] = (Floats)((Ints)(__builtin_convertvector(total, Floats) * from_integer) & keep);
    }
    const bool overflows = any_negative(overflow);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      if (__builtin_expect(!overflows, 1)) {
        store(c + first + kVecLen * i, results[i]);
      }
    }
    for (int n = first; overflows && n < first + kVectors * kVecLen; ++n) {
      c[n] = step_of_one(span, tile, begin, end, x, c[n], n);
    }
  }
}

struct RowExponents {
  alignas(32) uint8_t fields[kColsOfTile];
  bool fit;
};

// Asks for what will be read of x so many rows later, which may be the next step of this row.
inline void prefetch_next(const StepSpan& span,
                          bool with_last_places,
                          const StepOutputs<float>* rows,
                          int64_t num_rows,
                          int64_t m,
                          int begin,
                          int end) {
  constexpr int kPerLine = 16;
  const bool is_other = m + kRowsTogether < num_rows;
  const StepRow<float>& x = *rows[is_other ? m + kRowsTogether : m].x;
  const int first = is_other ? begin : end;
  if (first >= kBlockProducts) {
    return;
  }
  for (int k = first; k < first + span.step_len; k += kPerLine) {
    __builtin_prefetch(x.value + k);
  }
  __builtin_prefetch(x.depth + first);
  if (with_last_places) {
    __builtin_prefetch(x.last_place + first);
    __builtin_prefetch(x.places_of_weights + first);
  }
}

// Runs under rounding toward zero, which the caller has set: hence no inlining.
__attribute__((noinline)) inline void run_integer_steps(const StepSpan& span,
                                                        const StepTile<float>& tile,
                                                        const StepOutputs<float>* rows,
                                                        int64_t num_rows) {
  RowExponents exponents[kRowsTogether];
  for (int begin = span.begin; begin < span.end; begin += span.step_len) {
    const int end = begin + span.step_len < span.end ? begin + span.step_len : span.end;
    for (int64_t first = 0; first < num_rows; first += kRowsTogether) {
      const int64_t count = num_rows - first < kRowsTogether ? num_rows - first : kRowsTogether;
      for (int64_t m = 0; m < count; ++m) {
        const StepOutputs<float>& row = rows[first + m];
        prefetch_next(span, false, rows, num_rows, first + m, begin, end);
        exponents[m].fit = find_exponents(span, tile, begin, end, *row.x, row.c, exponents[m].fields);
      }
      for (int64_t m = 0; m < count; ++m) {
        const StepOutputs<float>& row = rows[first + m];
        if (exponents[m].fit) {
          add_step(span, tile, begin, end, *row.x, exponents[m].fields, row.c);
          continue;
        }
        add_step_plainly(span, tile, begin, end, row);
      }
    }
  }
}
