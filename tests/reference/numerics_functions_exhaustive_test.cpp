// The float forms over whole binades. Every 257th float is computed by MPFR. Where the double form runs in short code, every float is
// looked at: away from a rounding boundary of float the double form, a few ulp good, decides; near one MPFR does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>

#include "tests/reference/exact_functions.hpp"

namespace reference {
namespace {

constexpr int kNumSlices = 16;

// A function and the share of its binades that one test case takes: slice, slice + kNumSlices, ...
class Binades : public testing::TestWithParam<std::tuple<FunctionCase, int>> {
 public:
  static const FunctionCase& function() { return std::get<0>(GetParam()); }

  // is_right(x) for every stride-th float of the slice's binades within [min_exponent, max_exponent], in each sign the function has.
  template <typename IsRight>
  static void expect_all(int min_exponent, int max_exponent, int64_t stride, IsRight is_right) {
    int64_t num_floats = 0;
    int64_t num_wrong = 0;
    float first_wrong = 0.0f;
    const auto visit = [&](float x) {
      ++num_floats;
      if (!is_right(x)) {
        first_wrong = num_wrong == 0 ? x : first_wrong;
        ++num_wrong;
      }
    };
    for (int exponent = min_exponent + std::get<1>(GetParam()); exponent <= max_exponent; exponent += kNumSlices) {
      const float step = std::max(std::ldexp(1.0f, exponent - 23), 0x1p-149f);
      const int64_t first = static_cast<int64_t>(std::ldexp(1.0f, exponent) / step);
      for (int64_t multiple = first; multiple < 2 * first; multiple += stride) {
        visit(static_cast<float>(multiple) * step);
        if (!function().only_positive) {
          visit(static_cast<float>(-multiple) * step);
        }
      }
    }
    EXPECT_GT(num_floats, 0);
    EXPECT_EQ(num_wrong, 0) << "of " << num_floats << ", first: " << std::hexfloat << first_wrong;
  }
};

std::string slice_name(const testing::TestParamInfo<std::tuple<FunctionCase, int>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param));
}

float exact_float(const FunctionCase& function, float x) {
  ExactReal exact;
  function.exact(exact.get(), ExactReal(x).get());
  return exact.nearest_float();
}

class Every257thFloat : public Binades {};

INSTANTIATE_TEST_SUITE_P(Of,
                         Every257thFloat,
                         testing::Combine(testing::ValuesIn(kFunctionCases), testing::Range(0, kNumSlices)),
                         slice_name);

TEST_P(Every257thFloat, IsCorrectlyRounded) {
  expect_all(function().min_exponent, function().max_exponent, 257, [](float x) {
    return function().f32(x) == exact_float(function(), x);
  });
}

class EveryFloat : public Binades {};

INSTANTIATE_TEST_SUITE_P(Of,
                         EveryFloat,
                         testing::Combine(testing::ValuesIn(kFunctionCases.begin(),
                                                            kFunctionCases.begin() + kNumShortFunctions),
                                          testing::Range(0, kNumSlices)),
                         slice_name);

TEST_P(EveryFloat, IsCorrectlyRounded) {
  // Beyond these silu is x / 2, and rsqrt repeats itself by powers of 4.
  const int min_exponent = std::max(function().min_exponent, -61);
  const int max_exponent = std::min(function().max_exponent, 61);
  expect_all(min_exponent, max_exponent, 1, [](float x) {
    const double y = function().f64(x);
    const double margin = std::abs(y) * 0x1p-50;
    const float below = static_cast<float>(y - margin);
    const bool decided = below == static_cast<float>(y + margin);
    return function().f32(x) == (decided ? below : exact_float(function(), x));
  });
}

}  // namespace
}  // namespace reference
