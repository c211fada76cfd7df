// A real number held as the unevaluated sum of two doubles, about 105 bits, for functions that must round once at the end.
// Products are split by hand instead of fused: the bits do not depend on whether the machine has a fused multiply-add.
// Valid while no part overflows (|x| < 2^996) and no product's low part underflows (|x * y| > 2^-969).
#pragma once

namespace reference {

struct DoubleDouble {
  double hi;  // the sum rounded to double
  double lo;  // the rest
};

// a + b exactly; |a| >= |b| or a == 0.
constexpr DoubleDouble quick_two_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

// a + b exactly.
constexpr DoubleDouble two_sum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// a * b exactly (Dekker 1971): each factor is cut in halves of 26 bits, whose products fit in a double.
constexpr DoubleDouble two_product(double a, double b) {
  constexpr double kSplitter = 134217729.0;  // 2^27 + 1
  const double a_scaled = kSplitter * a;
  const double b_scaled = kSplitter * b;
  const double a_hi = a_scaled - (a_scaled - a);
  const double b_hi = b_scaled - (b_scaled - b);
  const double a_lo = a - a_hi;
  const double b_lo = b - b_hi;
  const double product = a * b;
  return {product, ((a_hi * b_hi - product) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo};
}

constexpr DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble high = two_sum(a.hi, b.hi);
  const DoubleDouble low = two_sum(a.lo, b.lo);
  const DoubleDouble joined = quick_two_sum(high.hi, high.lo + low.hi);
  return quick_two_sum(joined.hi, joined.lo + low.lo);
}

constexpr DoubleDouble operator-(DoubleDouble a) {
  return {-a.hi, -a.lo};
}

constexpr DoubleDouble operator-(DoubleDouble a, DoubleDouble b) {
  return a + -b;
}

constexpr DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble product = two_product(a.hi, b.hi);
  return quick_two_sum(product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi));
}

constexpr DoubleDouble operator*(DoubleDouble a, double b) {
  const DoubleDouble product = two_product(a.hi, b);
  return quick_two_sum(product.hi, product.lo + a.lo * b);
}

constexpr DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  const double quotient = a.hi / b.hi;
  const DoubleDouble rest = a - b * quotient;
  return quick_two_sum(quotient, rest.hi / b.hi);
}

}  // namespace reference
