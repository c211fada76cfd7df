#include "reference/numerics/bf16.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/reference/nearest_of_table.hpp"

namespace reference {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

float from_bits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}

// Neighbours of 1.0 are 2^-7 apart: half a step is the fraction bit 0x8000.
TEST(Bf16, TiesGoToTheEvenNeighbour) {
  EXPECT_EQ(encode_bf16(from_bits(0x3F808000)), 0x3F80);  // 1 + 2^-8, between 1 (even) and 1 + 2^-7
  EXPECT_EQ(encode_bf16(from_bits(0x3F808001)), 0x3F81);
  EXPECT_EQ(encode_bf16(from_bits(0x3F807FFF)), 0x3F80);
  EXPECT_EQ(encode_bf16(from_bits(0x3F818000)), 0x3F82);  // between 0x3F81 (odd) and 0x3F82
  EXPECT_EQ(encode_bf16(from_bits(0xBF818000)), 0xBF82);
}

TEST(Bf16, RoundsInsteadOfTruncating) {
  EXPECT_EQ(encode_bf16(from_bits(0x3F80FFFF)), 0x3F81);
}

TEST(Bf16, OverflowGivesInfinity) {
  EXPECT_EQ(encode_bf16(from_bits(0x7F7F7FFF)), 0x7F7F);  // just below the tie between the largest number and 2^128
  EXPECT_EQ(encode_bf16(from_bits(0x7F7F8000)), 0x7F80);
  EXPECT_EQ(encode_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(encode_bf16(-std::numeric_limits<float>::max()), 0xFF80);
  EXPECT_EQ(encode_bf16(kInf), 0x7F80);
  EXPECT_EQ(encode_bf16(-kInf), 0xFF80);
}

TEST(Bf16, SubnormalsAreKept) {
  EXPECT_EQ(encode_bf16(from_bits(0x00018000)), 0x0002);  // hardware converters that flush give 0 here
  EXPECT_EQ(encode_bf16(from_bits(0x00008000)), 0x0000);  // tie between 0 and the smallest subnormal
  EXPECT_EQ(encode_bf16(from_bits(0x00008001)), 0x0001);
  EXPECT_EQ(encode_bf16(from_bits(0x007FFFFF)), 0x0080);  // up into the normal numbers
}

TEST(Bf16, SignOfZeroIsKept) {
  EXPECT_EQ(encode_bf16(0.0f), 0x0000);
  EXPECT_EQ(encode_bf16(-0.0f), 0x8000);
  EXPECT_TRUE(std::signbit(round_to_bf16(-0.0f)));
}

TEST(Bf16, NanStaysNan) {
  for (const uint32_t bits : {0x7F800001u, 0x7F80FFFFu, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu}) {
    EXPECT_TRUE(std::isnan(round_to_bf16(from_bits(bits)))) << std::hex << bits;
  }
}

TEST(Bf16, EveryCodeRoundsToItself) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = from_bits(code << 16);
    if (!std::isnan(value)) {
      ASSERT_EQ(encode_bf16(value), code);
    }
  }
}

TEST(Bf16, IsTheNearestNumberOfTheTable) {
  const NearestOfTable nearest = nearest_bf16();
  for (uint64_t bits = 0; bits < 0x100000000; bits += 4099) {
    const float value = from_bits(static_cast<uint32_t>(bits));
    if (!std::isnan(value)) {
      const int64_t sign = std::signbit(value) ? 0x8000 : 0;
      ASSERT_EQ(encode_bf16(value), sign + nearest.code_of(std::abs(value))) << std::hexfloat << value;
    }
  }
}

}  // namespace
}  // namespace reference
