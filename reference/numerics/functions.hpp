// Elementary functions with the same bits on every compiler and machine: own polynomial code in double, no libm.
// The float forms are the double forms rounded once. Maximum errors are stated beside each and tested against MPFR.
#pragma once

namespace reference {

double exp_f64(double x);      // exp(-inf) = 0
double log_f64(double x);      // natural logarithm
double sin_f64(double x);      // |x| < 2^18
double cos_f64(double x);      // |x| < 2^18
double pow_f64(double base, double exponent);  // base > 0
double sigmoid_f64(double x);  // 1 / (1 + exp(-x)); no overflow for large |x|
double silu_f64(double x);     // x * sigmoid(x)
double rsqrt_f64(double x);    // 1 / sqrt(x)

// Rounded once to float.
float exp_f32(float x);
float log_f32(float x);
float sin_f32(float x);
float cos_f32(float x);
float sigmoid_f32(float x);
float silu_f32(float x);
float rsqrt_f32(float x);

}  // namespace reference
