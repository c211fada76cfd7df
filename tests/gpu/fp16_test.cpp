// FP16 on the host, every code, against the definition of IEEE 754's binary16.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gpu/portable/types.hpp"

namespace gpu {

namespace {

using DSV3_BACKEND::to_float;
using DSV3_BACKEND::to_fp16;

// The value of a code that is neither infinite nor NaN.
double value_of(int code) {
  const int exponent = code >> 10 & 0x1F;
  const int fraction = code & 0x3FF;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return code >= 0x8000 ? -magnitude : magnitude;
}

bool is_finite(int code) {
  return (code & 0x7C00) != 0x7C00;
}

fp16 code_of(int code) {
  return {static_cast<uint16_t>(code)};
}

TEST(Fp16, EveryCode_HasItsValue) {
  for (int code = 0; code < 0x10000; ++code) {
    const float value = to_float(code_of(code));
    if (is_finite(code)) {
      ASSERT_EQ(value, value_of(code)) << code;
      ASSERT_EQ(std::signbit(value), code >= 0x8000) << code;
    } else if ((code & 0x3FF) == 0) {
      ASSERT_EQ(value, code >= 0x8000 ? -INFINITY : INFINITY);
    } else {
      ASSERT_TRUE(std::isnan(value)) << code;
    }
  }
}

TEST(Fp16, EveryValue_GoesBackToItsCode) {
  for (int code = 0; code < 0x10000; ++code) {
    if (is_finite(code)) {
      ASSERT_EQ(to_fp16(static_cast<float>(value_of(code))).bits, code);
    }
  }
}

// FP32 holds the value halfway between two neighbours, and its own neighbours on either side.
TEST(Fp16, BetweenTwoCodes_RoundsToTheNearerOneAndHalfwayToEven) {
  for (int code = 0; code < 0x7BFF; ++code) {
    const auto halfway = static_cast<float>((value_of(code) + value_of(code + 1)) / 2);
    const int even = code % 2 == 0 ? code : code + 1;
    ASSERT_EQ(to_fp16(halfway).bits, even) << code;
    ASSERT_EQ(to_fp16(std::nextafter(halfway, 0.0f)).bits, code) << code;
    ASSERT_EQ(to_fp16(std::nextafter(halfway, INFINITY)).bits, code + 1) << code;
    ASSERT_EQ(to_fp16(-halfway).bits, even | 0x8000) << code;
  }
}

TEST(Fp16, BeyondTheLargest_IsInfinite) {
  EXPECT_EQ(to_fp16(65519.996f).bits, 0x7BFF);  // the FP32 below 65520, which is halfway to 2^16
  EXPECT_EQ(to_fp16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(to_fp16(-std::numeric_limits<float>::max()).bits, 0xFC00);
  EXPECT_EQ(to_fp16(INFINITY).bits, 0x7C00);
  EXPECT_EQ(to_fp16(std::nanf("")).bits, 0x7FFF);
  EXPECT_EQ(to_fp16(std::numeric_limits<float>::denorm_min()).bits, 0);
}

}  // namespace

}  // namespace gpu
