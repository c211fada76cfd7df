#include "reference/numerics/functions.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/reference/exact_functions.hpp"

namespace reference {
namespace {

constexpr int kPointsPerBinade = 97;

// Well mixed bits; a different word for every index. Steele, Lea, Flood 2014.
uint64_t splitmix(uint64_t index) {
  uint64_t z = (index + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

double with_exponent(uint64_t random_bits, int exponent) {
  const double fraction = std::bit_cast<double>((random_bits >> 12) | 0x3FF0000000000000);  // [1, 2)
  return std::ldexp(fraction, exponent);
}

// Spread over all binades of the function's range, both signs where it has both, and the powers of two themselves.
template <typename T>
std::vector<T> points_of(const FunctionCase& function) {
  std::vector<T> points;
  for (int exponent = function.min_exponent; exponent <= function.max_exponent; ++exponent) {
    for (int i = 0; i < kPointsPerBinade; ++i) {
      const uint64_t seed = static_cast<uint64_t>((exponent + 200) * 1000 + i);
      const double magnitude = i == 0 ? std::ldexp(1.0, exponent) : with_exponent(splitmix(seed), exponent);
      points.push_back(static_cast<T>(magnitude));
      if (!function.only_positive) {
        points.push_back(static_cast<T>(-magnitude));
      }
    }
  }
  return points;
}

class Function : public testing::TestWithParam<FunctionCase> {};

INSTANTIATE_TEST_SUITE_P(All, Function, testing::ValuesIn(kFunctionCases), [](const auto& function) {
  return function.param.name;
});

TEST_P(Function, DoubleFormIsWithinItsStatedError) {
  const FunctionCase& function = GetParam();
  ExactReal exact;
  for (const double x : points_of<double>(function)) {
    function.exact(exact.get(), ExactReal(x).get());
    ASSERT_LE(exact.ulps_from(function.f64(x)), function.max_ulps) << std::hexfloat << x;
  }
}

TEST_P(Function, FloatFormIsCorrectlyRounded) {
  const FunctionCase& function = GetParam();
  ExactReal exact;
  for (const float x : points_of<float>(function)) {
    if (std::abs(x) < std::ldexp(1.0f, function.max_exponent + 1)) {
      function.exact(exact.get(), ExactReal(x).get());
      ASSERT_EQ(function.f32(x), exact.nearest_float()) << std::hexfloat << x;
    }
  }
}

TEST_P(Function, NanGivesNan) {
  EXPECT_TRUE(std::isnan(GetParam().f32(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(GetParam().f64(-std::numeric_limits<double>::quiet_NaN())));
}

// Between 0 and 1.
double uniform(uint64_t index) {
  return with_exponent(splitmix(index), 0) - 1.0;
}

TEST(Exp, FullRangeOfDouble) {
  ExactReal exact;
  for (int i = 0; i < 50000; ++i) {
    const double x = -708.3 + 1418.0 * uniform(i);
    mpfr_exp(exact.get(), ExactReal(x).get(), MPFR_RNDN);
    ASSERT_LE(exact.ulps_from(exp_f64(x)), 0.7) << std::hexfloat << x;
  }
}

TEST(Sigmoid, WhereItLeavesZeroAndOne) {
  ExactReal exact;
  for (int i = 0; i < 50000; ++i) {
    const double x = -80.0 + 160.0 * uniform(i);
    exact_sigmoid(exact.get(), ExactReal(x).get());
    ASSERT_LE(exact.ulps_from(sigmoid_f64(x)), 0.7) << std::hexfloat << x;
    exact_silu(exact.get(), ExactReal(x).get());
    ASSERT_LE(exact.ulps_from(silu_f64(x)), 0.7) << std::hexfloat << x;
  }
}

TEST(Exp, SubnormalResultsOfDouble) {
  ExactReal exact;
  for (int i = 0; i < 5000; ++i) {
    const double x = -760.0 + 52.0 * uniform(i);
    mpfr_exp(exact.get(), ExactReal(x).get(), MPFR_RNDN);
    ASSERT_LE(exact.ulps_from(exp_f64(x)), 0.9) << std::hexfloat << x;
    exact_sigmoid(exact.get(), ExactReal(x).get());
    ASSERT_LE(exact.ulps_from(sigmoid_f64(x)), 0.9) << std::hexfloat << x;
    exact_silu(exact.get(), ExactReal(x).get());
    ASSERT_LE(exact.ulps_from(silu_f64(x)), 0.9) << std::hexfloat << x;
  }
}

// The doubles nearest to multiples of pi / 2, where the reduction cancels most.
TEST(SinCos, NearMultiplesOfHalfPi) {
  ExactReal half_pi;
  mpfr_const_pi(half_pi.get(), MPFR_RNDN);
  mpfr_div_ui(half_pi.get(), half_pi.get(), 2, MPFR_RNDN);
  ExactReal exact;
  for (unsigned multiple = 1; multiple < 166886; multiple += 5) {  // up to 2^18 / (pi / 2)
    mpfr_mul_ui(exact.get(), half_pi.get(), multiple, MPFR_RNDN);
    const double x = exact.nearest_double();
    const float x_float = exact.nearest_float();
    mpfr_sin(exact.get(), ExactReal(x).get(), MPFR_RNDN);
    ASSERT_LE(exact.ulps_from(sin_f64(x)), 0.501) << multiple;
    mpfr_cos(exact.get(), ExactReal(x).get(), MPFR_RNDN);
    ASSERT_LE(exact.ulps_from(cos_f64(x)), 0.501) << multiple;
    mpfr_sin(exact.get(), ExactReal(x_float).get(), MPFR_RNDN);
    ASSERT_EQ(sin_f32(x_float), exact.nearest_float()) << multiple;
    mpfr_cos(exact.get(), ExactReal(x_float).get(), MPFR_RNDN);
    ASSERT_EQ(cos_f32(x_float), exact.nearest_float()) << multiple;
  }
}

// Every base and dimension that rotary embeddings use, and then some; the reciprocal form too.
TEST(Pow, FrequenciesRoundCorrectlyToFloat) {
  ExactReal exact;
  for (const double base : {500.0, 1000.0, 8000.0, 10000.0, 50000.0, 100000.0, 500000.0, 1e6, 5e6, 10000.5, 777.25}) {
    for (const int dim : {8, 16, 32, 64, 96, 128, 192, 256}) {
      for (int k = -dim; k <= dim; ++k) {
        // Official code forms the exponent in float.
        for (const double exponent :
             {static_cast<double>(k) / dim, static_cast<double>(static_cast<float>(k) / static_cast<float>(dim))}) {
          mpfr_pow(exact.get(), ExactReal(base).get(), ExactReal(exponent).get(), MPFR_RNDN);
          ASSERT_LE(exact.ulps_from(pow_f64(base, exponent)), 0.501) << base << "^" << exponent;
          ASSERT_EQ(static_cast<float>(pow_f64(base, exponent)), exact.nearest_float()) << base << "^" << exponent;
        }
      }
    }
  }
}

TEST(Pow, FullRangeOfDouble) {
  ExactReal exact;
  for (int i = 0; i < 10000; ++i) {
    const double base = with_exponent(splitmix(i), static_cast<int>(splitmix(i + 500000) % 2046) - 1022);
    const double exponent = with_exponent(splitmix(i + 900000), static_cast<int>(splitmix(i + 1700000) % 12) - 8) - 1.0;
    mpfr_pow(exact.get(), ExactReal(base).get(), ExactReal(exponent).get(), MPFR_RNDN);
    const double expected = exact.nearest_double();
    if (std::isfinite(expected) && expected >= std::numeric_limits<double>::min()) {
      ASSERT_LE(exact.ulps_from(pow_f64(base, exponent)), 0.501) << base << "^" << exponent;
    }
  }
}

}  // namespace
}  // namespace reference
