#include "reference/numerics/fp16.hpp"

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

// Neighbours of 1.0 are 2^-10 apart: half a step is the fraction bit 0x1000.
TEST(Fp16, TiesGoToTheEvenNeighbour) {
  EXPECT_EQ(encode_fp16(from_bits(0x3F801000)), 0x3C00);
  EXPECT_EQ(encode_fp16(from_bits(0x3F801001)), 0x3C01);
  EXPECT_EQ(encode_fp16(from_bits(0x3F800FFF)), 0x3C00);
  EXPECT_EQ(encode_fp16(from_bits(0x3F803000)), 0x3C02);
  EXPECT_EQ(encode_fp16(from_bits(0xBF803000)), 0xBC02);
}

TEST(Fp16, OverflowGivesInfinity) {
  EXPECT_EQ(encode_fp16(65504.0f), 0x7BFF);
  EXPECT_EQ(encode_fp16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(encode_fp16(65520.0f), 0x7C00);
  EXPECT_EQ(encode_fp16(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(encode_fp16(-70000.0f), 0xFC00);
  EXPECT_EQ(encode_fp16(kInf), 0x7C00);
  EXPECT_EQ(encode_fp16(-kInf), 0xFC00);
}

TEST(Fp16, SubnormalsAreKept) {
  EXPECT_EQ(encode_fp16(0x1p-24f), 0x0001);
  EXPECT_EQ(encode_fp16(0x1p-25f), 0x0000);  // tie between 0 and the smallest subnormal
  EXPECT_EQ(encode_fp16(std::nextafter(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(encode_fp16(0x1.8p-24f), 0x0002);                      // tie between codes 1 and 2
  EXPECT_EQ(encode_fp16(std::nextafter(0x1p-14f, 0.0f)), 0x0400);  // up into the normal numbers
  EXPECT_EQ(encode_fp16(std::numeric_limits<float>::denorm_min()), 0x0000);
}

TEST(Fp16, SignOfZeroIsKept) {
  EXPECT_EQ(encode_fp16(0.0f), 0x0000);
  EXPECT_EQ(encode_fp16(-0.0f), 0x8000);
}

TEST(Fp16, NanStaysNan) {
  for (const uint32_t bits : {0x7F800001U, 0x7F80FFFFU, 0x7FC00000U, 0x7FFFFFFFU, 0xFF800001U, 0xFFFFFFFFU}) {
    EXPECT_TRUE(std::isnan(round_to_fp16(from_bits(bits)))) << std::hex << bits;
  }
}

TEST(Fp16, EveryCodeRoundsToItself) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = decode_fp16(static_cast<uint16_t>(code));
    if (!std::isnan(value)) {
      ASSERT_EQ(encode_fp16(value), code);
    }
  }
}

TEST(Fp16, IsTheNearestNumberOfTheTable) {
  const NearestOfTable nearest = nearest_fp16();
  for (uint64_t bits = 0; bits < 0x100000000; bits += 4099) {
    const float value = from_bits(static_cast<uint32_t>(bits));
    if (!std::isnan(value)) {
      const int64_t sign = std::signbit(value) ? 0x8000 : 0;
      ASSERT_EQ(encode_fp16(value), sign + nearest.code_of(std::abs(value))) << std::hexfloat << value;
    }
  }
}

}  // namespace
}  // namespace reference
