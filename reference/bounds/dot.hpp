// How far a sum of products may lie from the exact one, for any order of the additions that does not depend on the data.
#pragma once

#include <cstdint>
#include <span>

#include "reference/rules.hpp"

namespace reference {

// Unit roundoff of the arithmetic and the width of the statistical bound.
struct SumModel {
  double unit;        // 2^-24 in FP32; in exact mode 2^-53, twice the variance because our own value is rounded as well
  double num_sigmas;  // failures beyond it: 2 exp(-num_sigmas^2 / 2) for each sum
};

SumModel sum_model(const Rules& rules, double num_sigmas);

// Largest relative error of one elementary function of a device (exp, rsqrt, division), in units of roundoff: 2 ulp.
inline constexpr double kFunctionUnits = 4;

// Below the smallest normal FP32 number a device may flush a function's result to zero, as a reciprocal of an overflown exp does.
// Exact mode has no such device.
double flush_error(const Rules& rules);

struct ValueWithError {
  double value = 0;
  double error = 0;
};

// Statistics of the terms of one sum: enough for value and bound.
struct TermSums {
  int64_t count = 0;
  double sum = 0;
  double squares = 0;
  double magnitudes = 0;
  double largest_prefix = 0;  // largest |sum of the first j terms|
  double input_error = 0;     // what errors of the terms themselves amount to

  void add(double term, double term_error = 0);
};

// Rounding error of adding up the terms in any data-independent order.
// Derivation: each of the n additions rounds a partial sum s_j with an error uniform in +-unit * |s_j|. For an order chosen
// without looking at the data, E[s_j^2] <= sum^2 + squares if the terms come in no particular order; where they do (neighbouring keys
// alike, say), a chain in their own order has s_j^2 <= largest_prefix^2. So the variance of the total is at most
// n * unit^2 * (sum^2 + max(squares, largest_prefix^2)) / 3 and the error exceeds num_sigmas of it with probability
// 2 exp(-num_sigmas^2 / 2) (uniform variables are strictly sub-Gaussian). The products themselves add unit^2 * squares / 3. Never more than the deterministic
// gamma(n) * magnitudes.
double order_error(const SumModel& model, const TermSums& terms);

// Sum of a[k] * b[k] with both errors. a_error and b_error may be empty (exact operands).
ValueWithError dot_with_error(const SumModel& model,
                              std::span<const double> a,
                              std::span<const double> a_error,
                              std::span<const double> b,
                              std::span<const double> b_error);

}  // namespace reference
