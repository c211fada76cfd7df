#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "model/check.hpp"
#include "reference/numerics/functions.hpp"

namespace reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr float kInfFloat = std::numeric_limits<float>::infinity();

TEST(FunctionEdges, Exp) {
  EXPECT_EQ(exp_f64(0.0), 1.0);
  EXPECT_EQ(exp_f64(1.0), 0x1.5bf0a8b145769p+1);  // e, OEIS A001113
  EXPECT_EQ(exp_f64(kInf), kInf);
  EXPECT_EQ(exp_f64(-kInf), 0.0);
  EXPECT_EQ(exp_f64(709.8), kInf);  // the largest double is exp(709.78...)
  EXPECT_LT(exp_f64(709.78), kInf);
  EXPECT_EQ(exp_f64(-745.1), 0x1p-1074);  // 0.517 of the smallest subnormal
  EXPECT_EQ(exp_f64(-745.2), 0.0);        // 0.468 of it
  EXPECT_EQ(exp_f64(-1e300), 0.0);
  EXPECT_EQ(exp_f32(88.72f), 0x1.fe8c9p+127f);  // 0x1.fe8c8f2b...p127, mpmath
  EXPECT_EQ(exp_f32(88.73f), kInfFloat);
  EXPECT_EQ(exp_f32(kInfFloat), kInfFloat);
  EXPECT_EQ(exp_f32(std::numeric_limits<float>::max()), kInfFloat);
  EXPECT_EQ(exp_f32(-103.9f), 0x1p-149f);
  EXPECT_EQ(exp_f32(-104.0f), 0.0f);
  EXPECT_EQ(exp_f32(std::numeric_limits<float>::lowest()), 0.0f);
}

TEST(FunctionEdges, Log) {
  EXPECT_EQ(log_f64(1.0), 0.0);
  EXPECT_FALSE(std::signbit(log_f64(1.0)));
  EXPECT_EQ(log_f64(0.0), -kInf);
  EXPECT_EQ(log_f64(-0.0), -kInf);
  EXPECT_EQ(log_f64(kInf), kInf);
  EXPECT_TRUE(std::isnan(log_f64(-1.0)));
  EXPECT_EQ(log_f64(2.0), 0x1.62e42fefa39efp-1);  // OEIS A002162
  EXPECT_EQ(log_f32(0.0f), -kInfFloat);
  EXPECT_EQ(log_f32(1.0f), 0.0f);
  EXPECT_TRUE(std::isnan(log_f32(-1e-45f)));
  EXPECT_EQ(log_f32(kInfFloat), kInfFloat);
}

TEST(FunctionEdges, SinCos) {
  EXPECT_EQ(sin_f64(0.0), 0.0);
  EXPECT_TRUE(std::signbit(sin_f64(-0.0)));
  EXPECT_TRUE(std::signbit(sin_f32(-0.0f)));
  EXPECT_EQ(cos_f64(0.0), 1.0);
  EXPECT_EQ(cos_f32(-0.0f), 1.0f);
  EXPECT_EQ(sin_f32(1e-40f), 1e-40f);
  EXPECT_TRUE(std::isnan(sin_f64(kInf)));
  EXPECT_TRUE(std::isnan(cos_f32(-kInfFloat)));
  EXPECT_THROW(sin_f64(0x1p18), model::CheckError);
  EXPECT_THROW(cos_f32(-1e30f), model::CheckError);
  EXPECT_NO_THROW(cos_f64(std::nextafter(0x1p18, 0.0)));
}

TEST(FunctionEdges, Pow) {
  EXPECT_EQ(pow_f64(10000.0, 0.0), 1.0);
  EXPECT_EQ(pow_f64(10000.0, 1.0), 10000.0);
  EXPECT_EQ(pow_f64(10000.0, 0.5), 100.0);
  EXPECT_EQ(pow_f64(10000.0, -0.25), 0.1);
  EXPECT_EQ(pow_f64(2.0, -1074.0), 0x1p-1074);
  EXPECT_EQ(pow_f64(2.0, 1e6), kInf);
  EXPECT_EQ(pow_f64(2.0, -1e6), 0.0);
  EXPECT_EQ(pow_f64(1.0, 1e306), 1.0);
  EXPECT_THROW(pow_f64(0.0, 1.0), model::CheckError);
  EXPECT_THROW(pow_f64(2.0, kInf), model::CheckError);
}

TEST(FunctionEdges, Sigmoid) {
  EXPECT_EQ(sigmoid_f64(0.0), 0.5);
  EXPECT_EQ(sigmoid_f64(kInf), 1.0);
  EXPECT_EQ(sigmoid_f64(-kInf), 0.0);
  EXPECT_EQ(sigmoid_f64(1e300), 1.0);
  EXPECT_EQ(sigmoid_f64(-1e300), 0.0);
  EXPECT_EQ(sigmoid_f32(-100.0f), 27 * 0x1p-149f);  // 26.547 * 2^-149, mpmath
  EXPECT_EQ(sigmoid_f32(std::numeric_limits<float>::lowest()), 0.0f);
  EXPECT_EQ(sigmoid_f32(kInfFloat), 1.0f);
}

// 1/2 + x/4 lies midway between two floats and only - x^3/48, 2^-70 below, says to which side it belongs.
TEST(FunctionEdges, SigmoidNearZeroRoundsFromTheRealNumber) {
  EXPECT_EQ(sigmoid_f32(3 * 0x1p-23f), 0.5f + 0x1p-24f);
  EXPECT_EQ(sigmoid_f32(7 * 0x1p-23f), 0.5f + 3 * 0x1p-24f);
}

TEST(FunctionEdges, Silu) {
  EXPECT_EQ(silu_f64(0.0), 0.0);
  EXPECT_TRUE(std::signbit(silu_f64(-0.0)));
  EXPECT_EQ(silu_f64(kInf), kInf);
  EXPECT_TRUE(std::isnan(silu_f64(-kInf)));
  EXPECT_EQ(silu_f64(1e308), 1e308);
  EXPECT_EQ(silu_f64(-1e308), 0.0);
  EXPECT_EQ(silu_f32(kInfFloat), kInfFloat);
  EXPECT_TRUE(std::isnan(silu_f32(-kInfFloat)));
  EXPECT_EQ(silu_f32(std::numeric_limits<float>::max()), std::numeric_limits<float>::max());
  EXPECT_EQ(silu_f32(std::numeric_limits<float>::lowest()), 0.0f);
}

// silu(x) = x/2 + x^2/4: a hair above the tie x/2 for odd multiples of the smallest subnormal.
TEST(FunctionEdges, SiluOfSubnormalsRoundsUpwards) {
  const float unit = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(silu_f32(unit), unit);
  EXPECT_EQ(silu_f32(-unit), 0.0f);
  EXPECT_EQ(silu_f32(5 * unit), 3 * unit);
  EXPECT_EQ(silu_f32(-7 * unit), -3 * unit);
}

TEST(FunctionEdges, Rsqrt) {
  EXPECT_EQ(rsqrt_f64(4.0), 0.5);
  EXPECT_EQ(rsqrt_f64(0.0), kInf);
  EXPECT_EQ(rsqrt_f64(-0.0), -kInf);
  EXPECT_EQ(rsqrt_f64(kInf), 0.0);
  EXPECT_TRUE(std::isnan(rsqrt_f64(-1.0)));
  EXPECT_EQ(rsqrt_f64(0x1p-1074), 0x1p537);
  EXPECT_EQ(rsqrt_f32(0x1p-148f), 0x1p74f);
  EXPECT_EQ(rsqrt_f32(0.0f), kInfFloat);
}

}  // namespace
}  // namespace reference
