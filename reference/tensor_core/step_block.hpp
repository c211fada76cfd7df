// Steps of many outputs at once, with the bits of tc_step: for units that cut toward zero, which all measured ones do. Ways for steps that
// keep few bits or many:
// - StepTile<float>: products are exact in FP32. Times 2^(F - E) and turned into integers they are cut toward zero, and integers of 32
//   bits add up exactly. For a vector of products that is two multiplications, a conversion and an addition, and a quarter of a
//   subtraction and of a maximum of bytes for the largest exponent. E4M3 has a shorter way still (step_block_floor_bodies.hpp).
// - StepTile<double>: what those integers cannot hold. A running sum that starts at a large power of two M and is added to with rounding
//   toward zero cuts every positive product to the last place of M. One sum takes the positive products, another, from -M, the negative
//   ones; M is chosen so that its last place is 2^(E - F).
#pragma once

#include <cstdint>

#include "reference/simd/level.hpp"
#include "reference/tensor_core/recipe.hpp"

namespace reference::tensor_core {

inline constexpr int kBlockProducts = 128;  // of K that a tile covers

// 128 weights of each of kCols outputs, and 128 elements of a row of x. Products lie in the same order in both.
template <typename Real>
struct StepTile;
template <typename Real>
struct StepRow;

// Above the last place of every E4M3 product and sum, alone or beside that of a number, and twice it is a byte.
inline constexpr int8_t kNoPlace = 60;

template <>
struct alignas(64) StepTile<float> {
  static constexpr int kCols = 32;
  float weight[kBlockProducts][kCols];  // [k][output]
  // Of the number as the unit sees it, plus 127; 0: the weight is zero.
  uint8_t exponent[kBlockProducts][kCols];
  int smallest_exponent;  // of those above that are not 0; 255 where all are
  // The place of the lowest bit that is set, of negative weights and of positive ones; kNoPlace for the others.
  bool has_last_places;
  alignas(64) int8_t last_place[kBlockProducts][2][kCols];
};
template <>
struct alignas(64) StepRow<float> {
  float value[kBlockProducts];
  // How far the exponent lies below largest_exponent; 255: the number is zero.
  uint8_t depth[kBlockProducts];
  // Of E4M3 numbers: the place of the lowest bit that is set; zero: kNoPlace.
  int8_t last_place[kBlockProducts];
  // Where those of the weights lie that make a negative product, from StepTile::last_place[k] on: 0 or kCols.
  uint8_t places_of_weights[kBlockProducts];
  int largest_exponent;  // plus 127; 0: all numbers are zero
  int largest_depth;     // of those that are not zero
};

template <>
struct alignas(64) StepTile<double> {
  static constexpr int kCols = 16;
  // The positive numbers and 0 for the others; the negative ones and 0 for the others. A negative x swaps the two: by an index,
  // since a branch on signs, which are as good as random, costs more than the multiply-adds.
  double halves[2][kBlockProducts][kCols];
  int16_t exponent[kBlockProducts][kCols];  // of the number as the unit sees it
};
template <>
struct alignas(64) StepRow<double> {
  double value[kBlockProducts];
  int16_t exponent[kBlockProducts];
};
// Below the exponents of all products, alone or beside a real one.
inline constexpr int16_t kZeroExponent = -8000;

// begin and step_len are even; behind an odd end there is a zero in x.
struct StepSpan {
  int begin = 0;  // products [begin, end) of the block, `step_len` a step
  int end = kBlockProducts;
  int step_len = 0;
  int align_bits = 0;
  int result_bits = 0;
  int lowest_exponent = 0;  // terms are aligned at least to it
};

// Whether a rule's steps fit the sums of a way. `num_products` and `align_bits` as of a StepRule.
template <typename Real>
constexpr bool fits_sums(int num_products, int align_bits) {
  // A product is less than 4 * 2^E; c, which is less than 2 * 2^E, is looked at when it is added.
  return sizeof(Real) == 4 ? align_bits <= 29 && num_products <= 1 << (29 - align_bits)
                           : align_bits < 50 && 4 * num_products + 2 < int64_t{1} << (52 - align_bits);
}

// Whether E4M3 steps take the way of step_block_floor_bodies.hpp: a sum of either sign, added to 1.5 * 2^23 last places, keeps the place.
constexpr bool fits_floor(int num_products, int align_bits) {
  return align_bits < 16 && 2 * (4 * num_products + 2) < 1 << (23 - align_bits);
}
inline constexpr int64_t kRowsWithoutPlaces =
    2;  // of x: for so few the places of the bits of weights are not worth finding

// A row of x and its results. c[output] = the steps of a span, each on top of the one before; c holds FP32 numbers.
template <typename Real>
struct StepOutputs {
  const StepRow<Real>* x = nullptr;
  Real* c = nullptr;  // [kCols], aligned to 64 bytes
};

// Many rows with one tile, so that what a step reads of the tile stays in the first cache for all of them. Everything finite, no result
// near FP32's largest number, and fits_sums().
template <typename Real>
using StepKernel =
    void (*)(const StepSpan& span, const StepTile<Real>& tile, const StepOutputs<Real>* rows, int64_t num_rows);

// Numbers of a block, before they are unpacked.
struct StepNumbers {
  const float* numbers = nullptr;   // [kCols, 128]
  const uint8_t* places = nullptr;  // [128]: where in the tile product k lies
  int smallest_exponent = 0;        // of the format the unit sees: subnormal numbers keep it
};
// What was found: the largest exponent, and whether all are finite.
struct StepRange {
  int largest_exponent = 0;
  bool finite = true;
};
template <typename Real>
using FillTile = StepRange (*)(const StepNumbers& numbers, StepTile<Real>& tile);
// The same from codes as they are stored, E4M3FN or BF16, product k in place k. codes: [kCols, 128], a row every `stride` codes.
using FillFromE4m3 = StepRange (*)(const uint8_t* codes,
                                   int64_t stride,
                                   bool with_last_places,  // which few rows of x are not worth
                                   StepTile<float>& tile);
using FillFromBf16 = StepRange (*)(const uint16_t* codes, int64_t stride, StepTile<float>& tile);

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
  FillFromBf16 fill_from_bf16;  // likewise
  PromoteKernel promote;
};
// One table a level, each defined in a file that is compiled for it. Internal to step_kernels().
extern const StepKernels kBaselineSteps;
extern const StepKernels kAvx2Steps;
extern const StepKernels kAvx512Steps;

// The table of a supported level.
const StepKernels& step_kernels(simd::Level level);

}  // namespace reference::tensor_core
