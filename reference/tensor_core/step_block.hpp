// Steps of many outputs at once, with the bits of tc_step: for units that cut toward zero, which all measured ones do.
// How: a running sum that starts at a large power of two M and is added to with rounding toward zero cuts every positive product to
// the last place of M. One sum takes the positive products, another, from -M, the negative ones; M is chosen so that its last place is
// 2^(E - F). Products of the operands are exact in Real, so fusing them makes no difference. For a vector of products that is two
// multiply-adds, and one addition and one maximum of small integers for the largest exponent.
#pragma once

#include <cstdint>

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
  Real positive[kBlockProducts][kCols];                               // the number, or 0 if it is negative
  Real negative[kBlockProducts][kCols];                               // the number, or 0 if it is positive
  typename StepReal<Real>::Exponent exponent[kBlockProducts][kCols];  // of the number as the unit sees it
};

// 128 elements of a row of x.
template <typename Real>
struct alignas(64) StepRow {
  Real value[kBlockProducts];
  typename StepReal<Real>::Exponent exponent[kBlockProducts];
};

struct StepSpan {
  int begin = 0;  // products [begin, end) of the block, `step_len` a step
  int end = kBlockProducts;
  int step_len = 0;
  int align_bits = 0;
  int result_bits = 0;
  int lowest_exponent = 0;  // terms are aligned at least to it
};

// c[output] = the steps of the span, each on top of the one before; c holds FP32 numbers. Everything finite, no result near FP32's
// largest number, and (4 step_len + 2) < 2^(kFractionBits - align_bits).
template <typename Real>
using StepKernel = void (*)(const StepSpan& span, const StepRow<Real>& x, const StepTile<Real>& tile, Real* c);

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

template <typename Real>
struct StepFunctions {
  StepKernel<Real> steps;
  FillTile<Real> fill;
};
struct StepKernels {
  StepFunctions<float> of_float;
  StepFunctions<double> of_double;
};
// Tables of this build; null where the machine does not run it.
const StepKernels* step_kernels_baseline();
const StepKernels* step_kernels_avx2();
// The widest one.
const StepKernels& step_kernels();

}  // namespace reference::tensor_core
