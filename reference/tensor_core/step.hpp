// One step of a tensor core: a few products and an accumulator, aligned, cut, added and cut again.
// Source: MMA-Sim (arXiv 2511.10909) and "Accurate Models of NVIDIA Tensor Cores" (arXiv 2512.07004), whose published hardware vectors
// it reproduces bit for bit (docs/numerics.md, section 7).
#pragma once

#include <cstdint>
#include <span>

#include "reference/tensor_core/number.hpp"

namespace reference::tensor_core {

enum class Rounding {
  kTowardZero,   // magnitudes are cut: what all measured units do
  kDown,         // a two's complement shift
  kNearestEven,  // ties to even
};

struct StepRule {
  int num_products = 0;  // L: products added at once. 1 .. 64
  int align_bits = 0;    // F: bits kept below the largest exponent. 1 .. 48
  int result_bits = 0;   // P: fraction bits of the result. 1 .. 23
  Rounding align = Rounding::kTowardZero;
  Rounding result = Rounding::kTowardZero;
  int floor_below =
      7;  // the exponent that terms are aligned to is at least (smallest exponent of the result) - floor_below

  bool operator==(const StepRule&) const = default;
};

inline constexpr uint32_t kNanFp32 = 0x7FFFFFFF;
inline constexpr uint32_t kNanFp16 = 0x7FFF;

// D = sum a_i b_i + c, in integers: the definition.
// a, b: codes of `format`, at most L of them (what is missing counts as zero); c: a code of `out`, which is kFp32 or kFp16. Returns a
// code of `out`; an FP16 result is rounded to nearest even with 10 fraction bits whatever `rule.result` and P say.
//   1. Any NaN, an infinity times zero, or infinities of both signs give the canonical NaN; else an infinity gives that infinity.
//   2. A term is an exact product, at exponent e_a + e_b without normalising it, or c at its exponent. Zeros are no terms.
//   3. All terms are rounded (rule.align) to multiples of 2^(E - F), E the largest exponent among them, and added exactly.
//   4. The sum is rounded (rule.result) to P fraction bits; subnormal results are kept; overflow gives an infinity; zero is +0.
uint32_t tc_step(const StepRule& rule,
                 Format format,
                 std::span<const uint32_t> a,
                 std::span<const uint32_t> b,
                 uint32_t c,
                 Format out = Format::kFp32);

// The same bits from floating point: exact products in double, cut by the conversion to an integer. Falls back on tc_step where a
// term is near the limits of FP32, and for rules that do not cut toward zero.
uint32_t tc_step_float(const StepRule& rule,
                       Format format,
                       std::span<const uint32_t> a,
                       std::span<const uint32_t> b,
                       uint32_t c,
                       Format out = Format::kFp32);

}  // namespace reference::tensor_core
