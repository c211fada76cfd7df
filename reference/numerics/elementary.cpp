// Argument reduction and Taylor series in double-double; every next term left out is below 2^-100 of the sum.
#include "reference/numerics/elementary.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "model/check.hpp"

namespace reference {
namespace {

constexpr double kLog2E = 0x1.71547652b82fep+0;
constexpr DoubleDouble kLn2{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
// pi / 2 in parts of at most 33 bits and a rest: the product of a part and a quadrant number below 2^18 is exact.
constexpr std::array<double, 4> kHalfPi{
    0x1.921fb54400000p+0, 0x1.0b4611a600000p-34, 0x1.3198a2e000000p-69, 0x1.b839a252049c1p-104};

constexpr int kNumTerms = 28;

// 1 / n!
constexpr std::array<DoubleDouble, kNumTerms> kInverseFactorial = [] {
  std::array<DoubleDouble, kNumTerms> inverse{};
  inverse[0] = {1.0, 0.0};
  for (int n = 1; n < kNumTerms; ++n) {
    inverse[n] = inverse[n - 1] / DoubleDouble{static_cast<double>(n), 0.0};
  }
  return inverse;
}();

// 1 / (2n + 1)
constexpr std::array<DoubleDouble, kNumTerms> kInverseOdd = [] {
  std::array<DoubleDouble, kNumTerms> inverse{};
  for (int n = 0; n < kNumTerms; ++n) {
    inverse[n] = DoubleDouble{1.0, 0.0} / DoubleDouble{2.0 * n + 1.0, 0.0};
  }
  return inverse;
}();

// exponent in [-2044, 2046]. The first factor keeps a value near 1 normal, so that only the second can round.
double scale(double value, int exponent) {
  const int half = exponent / 2;
  return value * power_of_two(half) * power_of_two(exponent - half);
}

struct Angle {
  int quadrant;    // 0..3
  DoubleDouble r;  // |r| <= pi / 4
};

Angle reduce_angle(double x) {
  CHECK(std::abs(x) < 0x1p18);
  const double k = nearest_integer(x * kTwoOverPi);
  DoubleDouble r{x - k * kHalfPi[0], 0.0};  // exact: both are multiples of the same small power of two
  for (int part = 1; part < 4; ++part) {
    r = r + DoubleDouble{-k * kHalfPi[part], 0.0};
  }
  return {static_cast<int>(k) & 3, r};
}

// Sum of (-1)^n z^n / (2n + first)!, n = 0..13, z <= (pi / 4)^2: cosine for first = 0, sine / r for first = 1.
DoubleDouble alternating_series(DoubleDouble z, int first) {
  DoubleDouble sum = kInverseFactorial[26 + first];
  for (int n = 12; n >= 0; --n) {
    sum = kInverseFactorial[2 * n + first] - sum * z;
  }
  return sum;
}

}  // namespace

double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

double nearest_integer(double x) {
  constexpr double kAligner = 0x1.8p52;  // its ulp is 1
  return (x + kAligner) - kAligner;
}

double to_double(const Scaled& x) {
  return scale(x.value.hi + x.value.lo, x.exponent);
}

float to_float(const Scaled& x) {
  // Rounding to odd first keeps the news that there is a rest, so that the cast rounds as if from the full sum.
  const DoubleDouble value = quick_two_sum(x.value.hi, x.value.lo);
  uint64_t bits = std::bit_cast<uint64_t>(value.hi);
  if (value.lo != 0.0 && (bits & 1) == 0) {
    bits = (value.lo > 0.0) == (value.hi > 0.0) ? bits + 1 : bits - 1;
  }
  return static_cast<float>(scale(std::bit_cast<double>(bits), x.exponent));
}

// x = k ln 2 + r, |r| <= 0.35.
Scaled exp_long(DoubleDouble x) {
  const double k = nearest_integer(x.hi * kLog2E);
  const DoubleDouble r = x - kLn2 * k;
  DoubleDouble sum = kInverseFactorial[22];
  for (int n = 21; n >= 0; --n) {
    sum = sum * r + kInverseFactorial[n];
  }
  return {sum, static_cast<int>(k)};
}

// x = m 2^e, m in [sqrt(1/2), sqrt(2)]; log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.172.
DoubleDouble log_long(double x) {
  int exponent = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent = -54;
  }
  constexpr uint64_t kSqrtHalfBits = 0x3FE6A09E667F3BCD;
  const uint64_t above_sqrt_half = std::bit_cast<uint64_t>(x) - kSqrtHalfBits;
  exponent += static_cast<int>(static_cast<int64_t>(above_sqrt_half) >> 52);
  const double m = std::bit_cast<double>((above_sqrt_half & 0xFFFFFFFFFFFFF) + kSqrtHalfBits);
  const DoubleDouble s = DoubleDouble{m - 1.0, 0.0} / two_sum(m, 1.0);
  const DoubleDouble s_squared = s * s;
  DoubleDouble sum = kInverseOdd[20];
  for (int n = 19; n >= 0; --n) {
    sum = sum * s_squared + kInverseOdd[n];
  }
  return kLn2 * static_cast<double>(exponent) + s * sum * 2.0;
}

DoubleDouble sin_long(double x, int quarter_turns) {
  const Angle angle = reduce_angle(x);
  const int quadrant = (angle.quadrant + quarter_turns) & 3;
  const DoubleDouble z = angle.r * angle.r;
  const DoubleDouble magnitude = (quadrant & 1) == 0 ? angle.r * alternating_series(z, 1) : alternating_series(z, 0);
  return quadrant < 2 ? magnitude : -magnitude;
}

}  // namespace reference
