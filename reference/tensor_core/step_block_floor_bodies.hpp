// Steps that keep few bits, in FP32: for E4M3 with AVX2 and AVX-512. One running sum for each output starts at a large number A, whose
// last place is 2^(E - F), and is added to with rounding toward zero. So every product is rounded down to that place, which for a
// negative product that is not a multiple of it is one place too low; how many there are is counted. Whether a product is a multiple is
// seen from the last places of its operands, which are the places of their lowest bits that are set and add up. For a vector of products
// that is one multiply-add, and a quarter of two subtractions and a comparison of bytes.
// Included by step_block_x86.hpp. The including file has defined fused(x, w, sum), positive_part and
// negative_part(Floats), and kRowsOfSums.

constexpr int kVectorsOfTile = kColsOfTile / kVecLen;

// A row of which a step is to be added.
struct FloorRow {
  StepOutputs<float> outputs;
  RowExponents exponents;
};

template <int kRows>
__attribute__((always_inline)) inline void add_floor_step(
    const StepSpan& span, const StepTile<float>& tile, int begin, int end, const FloorRow* const* rows) {
  const StepRow<float>* x[kRows];
  alignas(64) float anchors[kRows][kColsOfTile];
  Floats above[kRows][kVectorsOfTile];
  __m256i counts[kRows];
  __m256i places[kRows];  // E - F
  const int anchor_of_zero = ((23 - span.align_bits) << 23) | (1 << 22);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const uint8_t* fields = rows[r]->exponents.fields;
    x[r] = rows[r]->outputs.x;
    counts[r] = _mm256_setzero_si256();
    places[r] = _mm256_sub_epi8(load<__m256i>(fields), _mm256_set1_epi8(static_cast<int8_t>(127 + span.align_bits)));
#pragma GCC unroll 4
    for (int i = 0; i < kVectorsOfTile; ++i) {
      const auto anchor = (Floats)((widened(fields + kVecLen * i) << 23) + anchor_of_zero);
      store(anchors[r] + kVecLen * i, anchor);
      above[r][i] = anchor + positive_part(load<Floats>(rows[r]->outputs.c + kVecLen * i));
    }
  }
  for (int k = begin; k < end; k += 2) {
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      Floats value[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        value[r] = x[r]->value[k + odd] - Floats{};
      }
#pragma GCC unroll 4
      for (int i = 0; i < kVectorsOfTile; ++i) {
        auto weight = load<Floats>(tile.weight[k + odd] + kVecLen * i);
        asm("" : "+x"(weight));
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          above[r][i] = fused(value[r], weight, above[r][i]);
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const auto of_x = _mm256_set1_epi8(x[r]->last_place[k + odd]);
        const auto of_weights = load<__m256i>(tile.last_place[k + odd][0] + x[r]->places_of_weights[k + odd]);
        counts[r] = _mm256_sub_epi8(counts[r], _mm256_cmpgt_epi8(_mm256_sub_epi8(places[r], of_x), of_weights));
      }
    }
  }
  const Ints keep = Ints{} + static_cast<int32_t>(~0U << (23 - span.result_bits));
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    alignas(32) uint8_t counts_of[kColsOfTile];
    store(counts_of, counts[r]);
    float* c = rows[r]->outputs.c;
#pragma GCC unroll 4
    for (int i = 0; i < kVectorsOfTile; ++i) {
      // A last place more is one more in the word.
      const auto sum = (Floats)((Ints)above[r][i] + widened(counts_of + kVecLen * i));
      const Floats below = negative_part(load<Floats>(c + kVecLen * i)) - load<Floats>(anchors[r] + kVecLen * i);
      store(c + kVecLen * i, (Floats)((Ints)(sum + below) & keep));
    }
  }
}

// Runs under rounding toward zero, which the caller has set: hence no inlining.
__attribute__((noinline)) inline void run_floor_steps(const StepSpan& span,
                                                      const StepTile<float>& tile,
                                                      const StepOutputs<float>* rows,
                                                      int64_t num_rows) {
  FloorRow taken[kRowsTogether];
  for (int begin = span.begin; begin < span.end; begin += span.step_len) {
    const int end = begin + span.step_len < span.end ? begin + span.step_len : span.end;
    for (int64_t first = 0; first < num_rows; first += kRowsTogether) {
      const int64_t last = first + kRowsTogether < num_rows ? first + kRowsTogether : num_rows;
      const FloorRow* fitting[kRowsTogether];
      int count = 0;
      for (int64_t m = first; m < last; ++m) {
        prefetch_next(span, true, rows, num_rows, m, begin, end);
        FloorRow& row = taken[m - first];
        row.outputs = rows[m];
        if (find_exponents(span, tile, begin, end, *rows[m].x, rows[m].c, row.exponents.fields)) {
          fitting[count++] = &row;
        } else {
          add_step_plainly(span, tile, begin, end, rows[m]);
        }
      }
      int r = 0;
      for (; r + kRowsOfSums <= count; r += kRowsOfSums) {
        add_floor_step<kRowsOfSums>(span, tile, begin, end, fitting + r);
      }
      for (; r < count; ++r) {
        add_floor_step<1>(span, tile, begin, end, fitting + r);
      }
    }
  }
}
