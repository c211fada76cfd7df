// exp, log, sin and cos to about 100 bits, and the one rounding that turns such a result into a double or a float.
// Internal to functions.cpp, which has the public forms and the special values.
#pragma once

#include "reference/numerics/double_double.hpp"

namespace reference {

// value * 2^exponent; value.hi is of the order of 1, so that scaling rounds once even where the result is subnormal.
struct Scaled {
  DoubleDouble value;
  int exponent;
};

// 2^exponent, exponent in [-1022, 1023].
double power_of_two(int exponent);
// Nearest integer of |x| < 2^51, ties to even.
double nearest_integer(double x);

double to_double(const Scaled& x);
float to_float(const Scaled& x);

Scaled exp_long(DoubleDouble x);  // |x| <= 800
DoubleDouble log_long(double x);  // x positive and finite
// sin(x + quarter_turns * pi / 2), |x| < 2^18: CheckError otherwise. quarter_turns 0 is the sine, 1 the cosine.
DoubleDouble sin_long(double x, int quarter_turns);

}  // namespace reference
