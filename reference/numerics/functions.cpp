// Elementary functions from IEEE +, -, *, / and sqrt alone, each written in one fixed order of operations.
// exp, sigmoid and silu, which run per element, have a short form good to a fraction of an ulp of double; everything else, and
// those three where a float result lies too close to a rounding boundary, is computed in double-double.
#include "reference/numerics/functions.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "model/check.hpp"
#include "reference/numerics/double_double.hpp"
#include "reference/numerics/elementary.hpp"

namespace reference {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DoubleDouble kOne{1.0, 0.0};

constexpr double kLog2E = 0x1.71547652b82fep+0;
// ln 2 in two parts; the first has 32 bits, so that its product with an exponent is exact.
constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// 1 / n!, n = 0..13
constexpr std::array<double, 14> kInverseFactorial = [] {
  std::array<double, 14> inverse{};
  double factorial = 1.0;
  for (int n = 0; n < 14; ++n) {
    inverse[n] = 1.0 / factorial;
    factorial *= n + 1;
  }
  return inverse;
}();

// The float nearest to a number that y has within 2^-51 relative; refine() where both ends of that interval do not agree.
template <typename Refine>
float round_or_refine(double y, Refine refine) {
  if (!std::isfinite(y)) {
    return static_cast<float>(y);
  }
  const double margin = std::abs(y) * 0x1p-51;
  const float below = static_cast<float>(y - margin);
  const float above = static_cast<float>(y + margin);
  return below == above ? static_cast<float>(y) : refine();
}

// |x| <= 800: x = k ln 2 + r, |r| <= 0.35; the next term, r^14 / 14!, is below 2^-57 of the sum. The pair is good to about 2^-55.
Scaled exp_short(double x) {
  const double k = nearest_integer(x * kLog2E);
  const double r_high = x - k * kLn2High;
  const double r_low = k * kLn2Low;
  const double r = r_high - r_low;
  const double r_rest = (r_high - r) - r_low;
  double tail = kInverseFactorial[13];
  for (int n = 12; n >= 2; --n) {
    tail = tail * r + kInverseFactorial[n];
  }
  const DoubleDouble without_one = quick_two_sum(r, r_rest + r * r * tail);
  const DoubleDouble sum = quick_two_sum(1.0, without_one.hi);
  return {{sum.hi, sum.lo + without_one.lo}, static_cast<int>(k)};
}

Scaled exp_long_of_double(double x) {
  return exp_long({x, 0.0});
}

// Beyond these exp is 0 or infinity in double.
bool exp_underflows(double x) {
  return x < -746.0;
}

bool exp_overflows(double x) {
  return x > 710.0;
}

// |x| <= 800. Without 1 + exp(-|x|) overflowing or losing the small side: exp(x) / (1 + exp(x)) for negative x.
Scaled sigmoid_scaled(double x, Scaled (*exp)(double)) {
  if (x < -75.0) {
    return exp(x);  // the divisor differs from 1 by less than 2^-108
  }
  if (x > 75.0) {
    return {kOne, 0};
  }
  const Scaled e = exp(-std::abs(x));
  const double factor = power_of_two(e.exponent);
  const DoubleDouble small{e.value.hi * factor, e.value.lo * factor};
  return {(x < 0.0 ? small : kOne) / (kOne + small), 0};
}

// 2^-60 < |x| <= 75, or x < 0.
Scaled silu_scaled(double x, Scaled (*exp)(double)) {
  const Scaled sigmoid = sigmoid_scaled(x, exp);
  return {sigmoid.value * x, sigmoid.exponent};
}

// silu is x / 2 + x^2 / 4 here: half of x, and a hair above it.
bool silu_is_half(double x) {
  return std::abs(x) < 0x1p-60;
}

// silu is x here, and x may be too large for a double-double product.
bool silu_is_identity(double x) {
  return x > 75.0;
}

}  // namespace

double exp_f64(double x) {
  if (std::isnan(x)) {
    return kNaN;
  }
  if (exp_overflows(x) || exp_underflows(x)) {
    return x > 0.0 ? kInf : 0.0;
  }
  return to_double(exp_short(x));
}

double log_f64(double x) {
  if (x == 0.0) {
    return -kInf;
  }
  if (!(x > 0.0)) {
    return kNaN;
  }
  return x == kInf ? x : log_long(x).hi;
}

double sin_f64(double x) {
  if (!std::isfinite(x)) {
    return kNaN;
  }
  // Also keeps the sign of zero and stays clear of products that underflow.
  return std::abs(x) < 0x1p-27 ? x : sin_long(x, 0).hi;
}

double cos_f64(double x) {
  return std::isfinite(x) ? sin_long(x, 1).hi : kNaN;
}

double pow_f64(double base, double exponent) {
  CHECK(base > 0.0 && std::isfinite(base) && std::isfinite(exponent));
  const DoubleDouble log_base = log_long(base);
  const double estimate = log_base.hi * exponent;
  if (estimate == 0.0) {
    return 1.0;
  }
  if (exp_overflows(estimate) || exp_underflows(estimate)) {
    return estimate > 0.0 ? kInf : 0.0;
  }
  return to_double(exp_long(log_base * exponent));
}

double sigmoid_f64(double x) {
  if (std::isnan(x)) {
    return kNaN;
  }
  if (exp_underflows(x)) {
    return 0.0;
  }
  return to_double(sigmoid_scaled(x, exp_short));
}

double silu_f64(double x) {
  if (std::isnan(x)) {
    return kNaN;
  }
  if (silu_is_identity(x)) {
    return x;
  }
  if (silu_is_half(x)) {
    return 0.5 * x;
  }
  if (x < -800.0) {
    return x == -kInf ? kNaN : -0.0;
  }
  return to_double(silu_scaled(x, exp_short));
}

double rsqrt_f64(double x) {
  if (x > 0.0 && x < 0x1p-900) {
    return rsqrt_f64(x * 0x1p200) * 0x1p100;
  }
  if (std::isnan(x) || x < 0.0) {
    return kNaN;
  }
  const double root = std::sqrt(x);
  if (x == 0.0 || x == kInf) {
    return 1.0 / root;
  }
  const DoubleDouble square = two_product(root, root);
  const double root_rest = ((x - square.hi) - square.lo) / (2.0 * root);
  return (kOne / DoubleDouble{root, root_rest}).hi;
}

float exp_f32(float x) {
  return round_or_refine(exp_f64(x), [x] { return to_float(exp_long_of_double(x)); });
}

float log_f32(float x) {
  const bool regular = x > 0.0f && x < std::numeric_limits<float>::infinity();
  return regular ? to_float({log_long(x), 0}) : static_cast<float>(log_f64(x));
}

float sin_f32(float x) {
  const bool regular = std::isfinite(x) && std::abs(x) >= 0x1p-27f;
  return regular ? to_float({sin_long(x, 0), 0}) : static_cast<float>(sin_f64(x));
}

float cos_f32(float x) {
  return std::isfinite(x) ? to_float({sin_long(x, 1), 0}) : std::numeric_limits<float>::quiet_NaN();
}

float sigmoid_f32(float x) {
  return round_or_refine(sigmoid_f64(x), [x] { return to_float(sigmoid_scaled(x, exp_long_of_double)); });
}

float silu_f32(float x) {
  if (silu_is_half(x)) {
    // The hair above x / 2 decides ties of subnormal floats.
    const double half = 0.5 * static_cast<double>(x);
    return static_cast<float>(half + std::abs(half) * 0x1p-50);
  }
  return round_or_refine(silu_f64(x), [x] { return to_float(silu_scaled(x, exp_long_of_double)); });
}

float rsqrt_f32(float x) {
  return static_cast<float>(rsqrt_f64(x));
}

}  // namespace reference
