// Steps of many outputs at once, with the bits of tc_step: for units that cut toward zero, which all measured ones do.
// How: a running sum that starts at a large power of two M and is added to with rounding toward zero cuts every positive product to
// the last place of M. One sum takes the positive products, another, from -M, the negative ones; M is chosen so that its last place is
// 2^(E - F). Products of the operands are exact in Real, so fusing them makes no difference. For a vector of products that is two
// multiply-adds, and one addition and one maximum of small integers for the largest exponent.
#pragma once

#include <cstdint>

#include "reference/simd/level.hpp"
#include "reference/tensor_core/recipe.hpp"

namespace reference::tensor_core {

inline constexpr int kBlockProducts = 128;  // of K that a tile covers

// What holds sums and exponents. float: E4M3 operands with few align bits. double: everything else.
template <typename Real>
struct StepReal;
template <>
struct StepReal<float> {
  using Exponent = int8_t;
  static constexpr int kFractionBits = 23;
  static constexpr int8_t kZeroExponent =
      -60;  // two of them stay inside int8_t, and one beside a real one is below all real sums
};
template <>
struct StepReal<double> {
  using Exponent = int16_t;
  static constexpr int kFractionBits = 52;
  static constexpr int16_t kZeroExponent = -8000;
};

// 128 weights of each of kCols outputs: [k][output].
template <typename Real>
struct alignas(64) StepTile {
  static constexpr int kCols = static_cast<int>(128 / sizeof(Real));  // four vectors of 32 bytes
  // The positive numbers and 0 for the others; the negative ones and 0 for the others. A negative x swaps the two: by an index,
  // since a branch on signs, which are as good as random, costs more than the multiply-adds.
  Real halves[2][kBlockProducts][kCols];
  // Of the number as the unit sees it. What lies where is between the two functions of a level.
  typename StepReal<Real>::Exponent exponent[kBlockProducts][kCols];
};

// Where the numbers of product k lie that go to the sum from M, and to the sum from -M.
template <typename Real>
struct StepOperands {
  const Real* to_above;
  const Real* to_below;
};
template <typename Real>
inline StepOperands<Real> operands_of(const StepTile<Real>& tile, int k, Real x) {
  constexpr int64_t kHalf = kBlockProducts * StepTile<Real>::kCols;
  int64_t negative = 0;  // all bits, or none
  if constexpr (sizeof(Real) == 4) {
    int32_t bits = 0;
    __builtin_memcpy(&bits, &x, sizeof(bits));
    negative = bits >> 31;
  } else {
    __builtin_memcpy(&negative, &x, sizeof(negative));
    negative >>= 63;
  }
  const int64_t swap = negative & kHalf;
  const Real* first = tile.halves[0][k];
  return {first + swap, first + (kHalf - swap)};
}

// 128 elements of a row of x.
template <typename Real>
struct alignas(64) StepRow {
  Real value[kBlockProducts];
  typename StepReal<Real>::Exponent exponent[kBlockProducts];
};

// begin and step_len are even; behind an odd end there is a zero in x.
struct StepSpan {
  int begin = 0;  // products [begin, end) of the block, `step_len` a step
  int end = kBlockProducts;
  int step_len = 0;
  int align_bits = 0;
  int result_bits = 0;
  int lowest_exponent = 0;  // terms are aligned at least to it
};

// A row of x and its results. c[output] = the steps of a span, each on top of the one before; c holds FP32 numbers.
template <typename Real>
struct StepOutputs {
  const StepRow<Real>* x = nullptr;
  Real* c = nullptr;  // [kCols], aligned to 64 bytes
};

// Many rows with one tile, so that what a step reads of the tile stays in the first cache for all of them. Everything finite, no result
// near FP32's largest number, and (4 step_len + 2) < 2^(kFractionBits - align_bits).
template <typename Real>
using StepKernel =
    void (*)(const StepSpan& span, const StepTile<Real>& tile, const StepOutputs<Real>* rows, int64_t num_rows);

// Numbers of a block, before they are unpacked.
struct StepNumbers {
  const float* numbers = nullptr;   // [kCols, 128]
  const uint8_t* places = nullptr;  // [128]: where in the tile product k lies; product k + 1 lies behind an even k
  int smallest_exponent = 0;        // of the format the unit sees: subnormal numbers keep it
};
// What was found: the largest exponent, and whether all are finite.
struct StepRange {
  int largest_exponent = 0;
  bool finite = true;
};
template <typename Real>
using FillTile = StepRange (*)(const StepNumbers& numbers, StepTile<Real>& tile);
// The same from E4M3FN codes as they are stored, product k in place k. codes: [kCols, 128], a row every `stride` bytes.
using FillFromE4m3 = StepRange (*)(const uint8_t* codes, int64_t stride, StepTile<float>& tile);

template <typename Real>
struct StepFunctions {
  StepKernel<Real> steps;
  FillTile<Real> fill;
};
// f[i] = promote(form, t[i], a_scale, b_scale, f[i]) of linear_dot.hpp; `len` is a multiple of 16, t and f are aligned to 64 bytes.
struct PromoteRow {
  Promotion::Form form;
  float a_scale;
  float b_scale;
  int len;
};
using PromoteKernel = void (*)(const PromoteRow& row, const float* t, float* f);

struct StepKernels {
  StepFunctions<float> of_float;
  StepFunctions<double> of_double;
  FillFromE4m3 fill_from_e4m3;  // null: this level has none
  PromoteKernel promote;
};
// One table a level, each defined in a file that is compiled for it. Internal to step_kernels().
extern const StepKernels kBaselineSteps;
extern const StepKernels kAvx2Steps;
extern const StepKernels kAvx512Steps;

// The table of a supported level.
const StepKernels& step_kernels(simd::Level level);

}  // namespace reference::tensor_core
