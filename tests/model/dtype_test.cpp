#include "model/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace model {
namespace {

// OCP OFP8 table: sign, 4 exponent bits (bias 7), 3 fraction bits; no infinity; 0x7F and 0xFF are NaN.
TEST(DType, F8E4M3_EdgesOfTheFormat) {
  EXPECT_EQ(decode_f8_e4m3(0x00), 0.0f);
  EXPECT_TRUE(std::signbit(decode_f8_e4m3(0x80)));
  EXPECT_EQ(decode_f8_e4m3(0x01), 0.001953125f);  // smallest subnormal, 2^-9
  EXPECT_EQ(decode_f8_e4m3(0x07), 0.013671875f);  // largest subnormal, 7 * 2^-9
  EXPECT_EQ(decode_f8_e4m3(0x08), 0.015625f);     // smallest normal, 2^-6
  EXPECT_EQ(decode_f8_e4m3(0x38), 1.0f);
  EXPECT_EQ(decode_f8_e4m3(0x7E), 448.0f);
  EXPECT_EQ(decode_f8_e4m3(0xFE), -448.0f);
  EXPECT_TRUE(std::isnan(decode_f8_e4m3(0x7F)));
  EXPECT_TRUE(std::isnan(decode_f8_e4m3(0xFF)));
}

TEST(DType, F8E8M0_IsAPowerOfTwo) {
  EXPECT_EQ(decode_f8_e8m0(127), 1.0f);
  EXPECT_EQ(decode_f8_e8m0(0), std::ldexp(1.0f, -127));
  EXPECT_EQ(decode_f8_e8m0(254), std::ldexp(1.0f, 127));
  EXPECT_TRUE(std::isnan(decode_f8_e8m0(255)));
}

TEST(DType, NamesRoundTrip) {
  for (const DType dtype : {DType::kF64,
                            DType::kF32,
                            DType::kBF16,
                            DType::kF16,
                            DType::kF8E4M3,
                            DType::kF8E8M0,
                            DType::kI64,
                            DType::kI32,
                            DType::kU8}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("F7"), std::nullopt);
}

}  // namespace
}  // namespace model
