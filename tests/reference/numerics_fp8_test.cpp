#include "reference/numerics/fp8.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "model/dtype.hpp"
#include "tests/reference/nearest_of_table.hpp"

namespace reference {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

float above(float value) {
  return std::nextafter(value, kInf);
}

float below(float value) {
  return std::nextafter(value, -kInf);
}

// Codes from the format: 0x7E is 448, 0x38 is 1, 0x08 is 2^-6, 0x01 is 2^-9.
TEST(F8E4M3, SaturatesAt448) {
  EXPECT_EQ(encode_f8_e4m3(448.0f), 0x7E);
  EXPECT_EQ(encode_f8_e4m3(464.0f), 0x7E);
  EXPECT_EQ(encode_f8_e4m3(above(464.0f)), 0x7E);
  EXPECT_EQ(encode_f8_e4m3(1e30f), 0x7E);
  EXPECT_EQ(encode_f8_e4m3(kInf), 0x7E);
  EXPECT_EQ(encode_f8_e4m3(-448.0f), 0xFE);
  EXPECT_EQ(encode_f8_e4m3(below(-464.0f)), 0xFE);
  EXPECT_EQ(encode_f8_e4m3(-kInf), 0xFE);
}

TEST(F8E4M3, NanIs7FInEitherSign) {
  for (const uint32_t bits : {0x7F800001u, 0x7FC00000u, 0xFF800001u, 0xFFC00000u, 0xFFFFFFFFu}) {
    EXPECT_EQ(encode_f8_e4m3(std::bit_cast<float>(bits)), 0x7F) << std::hex << bits;
  }
  EXPECT_TRUE(std::isnan(round_to_f8_e4m3(std::numeric_limits<float>::quiet_NaN())));
}

TEST(F8E4M3, SubnormalsRoundToMultiplesOfTwoToMinus9) {
  EXPECT_EQ(encode_f8_e4m3(0x1p-10f), 0x00);  // tie between 0 and 2^-9
  EXPECT_EQ(encode_f8_e4m3(above(0x1p-10f)), 0x01);
  EXPECT_EQ(encode_f8_e4m3(-above(0x1p-10f)), 0x81);
  EXPECT_EQ(encode_f8_e4m3(0x1p-9f), 0x01);
  EXPECT_EQ(encode_f8_e4m3(1.5f * 0x1p-9f), 0x02);  // tie between 1 (odd) and 2
  EXPECT_EQ(encode_f8_e4m3(2.5f * 0x1p-9f), 0x02);  // tie between 2 and 3 (odd)
  EXPECT_EQ(encode_f8_e4m3(7.5f * 0x1p-9f), 0x08);  // tie between 7 (odd) and the smallest normal number
  EXPECT_EQ(encode_f8_e4m3(below(7.5f * 0x1p-9f)), 0x07);
  EXPECT_EQ(encode_f8_e4m3(std::numeric_limits<float>::denorm_min()), 0x00);
}

TEST(F8E4M3, NormalTiesGoToTheEvenCode) {
  EXPECT_EQ(encode_f8_e4m3(1.0625f), 0x38);  // between 1 and 1.125
  EXPECT_EQ(encode_f8_e4m3(above(1.0625f)), 0x39);
  EXPECT_EQ(encode_f8_e4m3(1.1875f), 0x3A);  // between 1.125 (odd) and 1.25
  EXPECT_EQ(encode_f8_e4m3(below(1.1875f)), 0x39);
  EXPECT_EQ(encode_f8_e4m3(1.9375f), 0x40);  // between 1.875 (odd) and 2
  EXPECT_EQ(encode_f8_e4m3(432.0f), 0x7E);   // between 416 (odd) and 448
  EXPECT_EQ(round_to_f8_e4m3(-432.0f), -448.0f);
}

TEST(F8E4M3, SignOfZeroIsKept) {
  EXPECT_EQ(encode_f8_e4m3(0.0f), 0x00);
  EXPECT_EQ(encode_f8_e4m3(-0.0f), 0x80);
  EXPECT_EQ(encode_f8_e4m3(-0x1p-10f), 0x80);
}

TEST(F8E4M3, EveryCodeRoundsToItself) {
  for (int code = 0; code < 256; ++code) {
    const bool nan = (code & 0x7F) == 0x7F;
    EXPECT_EQ(encode_f8_e4m3(model::decode_f8_e4m3(static_cast<uint8_t>(code))), nan ? 0x7F : code);
  }
}

TEST(F8E4M3, IsTheNearestNumberOfTheTable) {
  const NearestOfTable nearest = nearest_f8_e4m3();
  for (uint64_t bits = 0; bits < 0x100000000; bits += 4099) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!std::isnan(value)) {
      const int64_t sign = std::signbit(value) ? 0x80 : 0;
      ASSERT_EQ(encode_f8_e4m3(value), sign + nearest.code_of(std::abs(value))) << std::hexfloat << value;
    }
  }
}

TEST(RoundUpToPowerOfTwo, KeepsPowersOfTwo) {
  for (int exponent = -126; exponent <= 127; ++exponent) {
    EXPECT_EQ(round_up_to_power_of_two(std::ldexp(1.0f, exponent)), std::ldexp(1.0f, exponent));
  }
}

// Where a logarithm in float rounds to the integer itself and misses the step.
TEST(RoundUpToPowerOfTwo, GoesUpFromAFewUlpAbove) {
  for (int exponent = -126; exponent <= 126; ++exponent) {
    float value = std::ldexp(1.0f, exponent);
    for (int ulps = 1; ulps <= 40; ++ulps) {
      value = above(value);
      ASSERT_EQ(round_up_to_power_of_two(value), std::ldexp(1.0f, exponent + 1)) << std::hexfloat << value;
    }
  }
}

TEST(RoundUpToPowerOfTwo, StaysWithinTheNormalExponents) {
  EXPECT_EQ(round_up_to_power_of_two(std::numeric_limits<float>::denorm_min()), 0x1p-126f);
  EXPECT_EQ(round_up_to_power_of_two(below(0x1p-126f)), 0x1p-126f);
  EXPECT_EQ(round_up_to_power_of_two(above(0x1p127f)), kInf);
}

TEST(RoundUpToPowerOfTwo, KnownScales) {
  EXPECT_EQ(round_up_to_power_of_two(1.0000001f), 2.0f);
  EXPECT_EQ(round_up_to_power_of_two(below(2.0f)), 2.0f);
  EXPECT_EQ(round_up_to_power_of_two(3.0f), 4.0f);
  EXPECT_EQ(round_up_to_power_of_two(1e-4f / 448.0f),
            0x1p-22f);  // 2.23e-7, between 2^-23 (1.19e-7) and 2^-22 (2.38e-7)
}

}  // namespace
}  // namespace reference
