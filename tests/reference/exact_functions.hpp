// What the elementary functions should give: MPFR to 256 bits, the maximum errors that functions.hpp states, and how far a double is off.
#pragma once

#include <mpfr.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>

#include "reference/numerics/functions.hpp"

namespace reference {

class ExactReal {
 public:
  ExactReal() { mpfr_init2(value_, 256); }
  explicit ExactReal(double value) : ExactReal() { mpfr_set_d(value_, value, MPFR_RNDN); }
  ExactReal(const ExactReal&) = delete;
  ExactReal& operator=(const ExactReal&) = delete;
  ~ExactReal() { mpfr_clear(value_); }

  mpfr_ptr get() { return value_; }
  mpfr_srcptr get() const { return value_; }
  float nearest_float() const { return mpfr_get_flt(value_, MPFR_RNDN); }
  double nearest_double() const { return mpfr_get_d(value_, MPFR_RNDN); }

  // |got - this| in units of the last place that a double near this has.
  double ulps_from(double got) const {
    const double nearest = nearest_double();
    if (!std::isfinite(nearest) || !std::isfinite(got)) {
      return got == nearest ? 0.0 : HUGE_VAL;
    }
    const int exponent = mpfr_zero_p(value_) != 0 ? -1074 : static_cast<int>(mpfr_get_exp(value_)) - 53;
    ExactReal distance(got);
    mpfr_sub(distance.value_, distance.value_, value_, MPFR_RNDN);
    mpfr_mul_2si(distance.value_, distance.value_, -std::max(exponent, -1074), MPFR_RNDN);
    return std::abs(distance.nearest_double());
  }

 private:
  mpfr_t value_;
};

inline void exact_sigmoid(mpfr_ptr result, mpfr_srcptr x) {
  mpfr_neg(result, x, MPFR_RNDN);
  mpfr_exp(result, result, MPFR_RNDN);
  mpfr_add_ui(result, result, 1, MPFR_RNDN);
  mpfr_ui_div(result, 1, result, MPFR_RNDN);
}

inline void exact_silu(mpfr_ptr result, mpfr_srcptr x) {
  exact_sigmoid(result, x);
  mpfr_mul(result, result, x, MPFR_RNDN);
}

struct FunctionCase {
  const char* name;
  float (*f32)(float);
  double (*f64)(double);
  void (*exact)(mpfr_ptr, mpfr_srcptr);
  double max_ulps;  // of f64, as functions.hpp states, where the result is normal
  bool only_positive;
  // Between these powers of two |x| gives results that are neither trivial nor out of range in float.
  int min_exponent;
  int max_exponent;
};

inline std::ostream& operator<<(std::ostream& out, const FunctionCase& function) {
  return out << function.name;
}

// The first four have short code for speed.
constexpr int kNumShortFunctions = 4;
inline const std::array<FunctionCase, 7> kFunctionCases{{
    {"exp", exp_f32, exp_f64, [](mpfr_ptr y, mpfr_srcptr x) { mpfr_exp(y, x, MPFR_RNDN); }, 0.7, false, -27, 6},
    {"sigmoid", sigmoid_f32, sigmoid_f64, exact_sigmoid, 0.7, false, -27, 6},
    {"silu", silu_f32, silu_f64, exact_silu, 0.7, false, -149, 6},
    {"rsqrt",
     rsqrt_f32,
     rsqrt_f64,
     [](mpfr_ptr y, mpfr_srcptr x) { mpfr_rec_sqrt(y, x, MPFR_RNDN); },
     0.501,
     true,
     -149,
     127},
    {"log", log_f32, log_f64, [](mpfr_ptr y, mpfr_srcptr x) { mpfr_log(y, x, MPFR_RNDN); }, 0.501, true, -149, 127},
    {"sin", sin_f32, sin_f64, [](mpfr_ptr y, mpfr_srcptr x) { mpfr_sin(y, x, MPFR_RNDN); }, 0.501, false, -28, 17},
    {"cos", cos_f32, cos_f64, [](mpfr_ptr y, mpfr_srcptr x) { mpfr_cos(y, x, MPFR_RNDN); }, 0.501, false, -28, 17},
}};

}  // namespace reference
