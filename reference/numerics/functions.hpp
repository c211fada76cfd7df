// Elementary functions with the same bits on every compiler and machine: own polynomial code in double, no libm but sqrt.
// The double forms have the maximum errors stated beside them, in ulp of the result, tested against MPFR; a subnormal result is
// rounded twice and within 0.9 ulp.
// The float forms are correctly rounded: the nearest float of the real number, ties to even.
// NaN gives NaN everywhere, always the same one.
#pragma once

namespace reference {

double exp_f64(double x);                      // 0.7 ulp; exp(-inf) = 0; overflow gives inf
double log_f64(double x);                      // 0.501 ulp; log(0) = -inf; NaN below 0
double sin_f64(double x);                      // 0.501 ulp; |x| < 2^18, CheckError beyond; NaN for +-inf
double cos_f64(double x);                      // 0.501 ulp; |x| < 2^18, CheckError beyond; NaN for +-inf
double pow_f64(double base, double exponent);  // 0.501 ulp; base > 0, both finite: CheckError otherwise
double sigmoid_f64(double x);                  // 0.7 ulp; 1 / (1 + exp(-x)) without overflow, relative for large -x too
double silu_f64(double x);                     // 0.7 ulp; x * sigmoid(x), therefore NaN for -inf
double rsqrt_f64(double x);                    // 0.501 ulp; 1 / sqrt(x): inf for 0, NaN below 0

float exp_f32(float x);
float log_f32(float x);
float sin_f32(float x);
float cos_f32(float x);
float sigmoid_f32(float x);
float silu_f32(float x);
float rsqrt_f32(float x);

}  // namespace reference
