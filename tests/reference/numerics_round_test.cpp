#include "reference/numerics/round.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "model/check.hpp"
#include "tests/reference/nearest_of_table.hpp"

namespace reference {
namespace {

using model::DType;
constexpr double kInf = std::numeric_limits<double>::infinity();

// Well mixed bits; a different double for every index. Steele, Lea, Flood 2014.
uint64_t splitmix(uint64_t index) {
  uint64_t z = (index + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// A double whose exponent lies in [low, high] and whose fraction often ends in a run of zeros: ties and near-ties.
double mixed_double(uint64_t index, int low, int high) {
  const uint64_t bits = splitmix(index);
  const uint64_t fraction = (bits & 0xFFFFFFFFFFFFF) & ~((uint64_t{1} << (index % 53)) - 1);
  const uint64_t exponent = static_cast<uint64_t>(low + 1023 + static_cast<int>((bits >> 53) % (high - low + 1)));
  return std::bit_cast<double>((bits & (uint64_t{1} << 63)) | exponent << 52 | fraction);
}

TEST(RoundToFormat, RoundsOnceWhereTwoStepsWouldDiffer) {
  // 2^-40 above the tie between 1 and 1.125: through float the rest is lost and the tie goes to the even 1.
  EXPECT_EQ(round_to_format(DType::kF8E4M3, 1.0625 + 0x1p-40), 1.125);
  EXPECT_EQ(round_to_format(DType::kF8E4M3, 1.0625), 1.0);
  EXPECT_EQ(round_to_format(DType::kF8E4M3, 0x1p-10 + 0x1p-60), 0x1p-9);
  EXPECT_EQ(round_to_format(DType::kBF16, 1.0 + 0x1p-8 + 0x1p-40), 1.0 + 0x1p-7);
  EXPECT_EQ(round_to_format(DType::kBF16, 1.0 + 0x1p-8), 1.0);
  EXPECT_EQ(round_to_format(DType::kBF16, 0x1p-134 + 0x1p-180), 0x1p-133);
  EXPECT_EQ(round_to_format(DType::kBF16, 0x1p-134), 0.0);
}

TEST(RoundToFormat, F64IsIdentity) {
  EXPECT_EQ(round_to_format(DType::kF64, 0.1), 0.1);
  EXPECT_EQ(round_to_format(DType::kF64, 5e-324), 5e-324);
}

TEST(RoundToFormat, F8Saturates) {
  EXPECT_EQ(round_to_format(DType::kF8E4M3, 464.0), 448.0);
  EXPECT_EQ(round_to_format(DType::kF8E4M3, 465.0), 448.0);
  EXPECT_EQ(round_to_format(DType::kF8E4M3, -1e300), -448.0);
  EXPECT_EQ(round_to_format(DType::kF8E4M3, kInf), 448.0);
}

TEST(RoundToFormat, OverflowGivesInfinity) {
  EXPECT_EQ(round_to_format(DType::kBF16, 0x1.FEFFFFp127), 0x1.FEp127);
  EXPECT_EQ(round_to_format(DType::kBF16, 0x1.FFp127), kInf);
  EXPECT_EQ(round_to_format(DType::kBF16, -1e300), -kInf);
  EXPECT_EQ(round_to_format(DType::kF32, 0x1.FFFFFEFFp127), 0x1.FFFFFEp127);
  EXPECT_EQ(round_to_format(DType::kF32, 0x1.FFFFFFp127), kInf);
  EXPECT_EQ(round_to_format(DType::kF32, -kInf), -kInf);
}

TEST(RoundToFormat, NanAndSignOfZeroStay) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    EXPECT_TRUE(std::isnan(round_to_format(dtype, std::numeric_limits<double>::quiet_NaN())));
    EXPECT_TRUE(std::signbit(round_to_format(dtype, -0.0)));
  }
  EXPECT_TRUE(std::signbit(round_to_format(DType::kBF16, -1e-300)));
}

TEST(RoundToFormat, OtherFormatsAreRefused) {
  EXPECT_THROW(round_to_format(DType::kI32, 1.0), model::CheckError);
  EXPECT_THROW(ulp_in_format(DType::kF8E8M0, 1.0), model::CheckError);
}

// The conversion double -> float is IEEE's own single rounding.
TEST(RoundToFormat, F32IsTheConversionToFloat) {
  for (uint64_t i = 0; i < 200000; ++i) {
    const double value = mixed_double(i, -155, 130);
    ASSERT_EQ(round_to_format(DType::kF32, value), static_cast<double>(static_cast<float>(value)))
        << std::hexfloat << value;
  }
}

TEST(RoundToFormat, Bf16IsTheNearestNumberOfTheTable) {
  const NearestOfTable nearest = nearest_bf16();
  for (uint64_t i = 0; i < 200000; ++i) {
    const double value = mixed_double(i, -140, 129);
    const uint32_t code = static_cast<uint32_t>(nearest.code_of(std::abs(value)));
    const double expected = std::copysign(std::bit_cast<float>(code << 16), value);
    ASSERT_EQ(round_to_format(DType::kBF16, value), expected) << std::hexfloat << value;
  }
}

TEST(RoundToFormat, F8IsTheNearestNumberOfTheTable) {
  const NearestOfTable nearest = nearest_f8_e4m3();
  for (uint64_t i = 0; i < 200000; ++i) {
    const double value = mixed_double(i, -13, 10);
    const uint8_t code = static_cast<uint8_t>(nearest.code_of(std::abs(value)));
    const double expected = std::copysign(model::decode_f8_e4m3(code), value);
    ASSERT_EQ(round_to_format(DType::kF8E4M3, value), expected) << std::hexfloat << value;
  }
}

TEST(UlpInFormat, IsTheStepOfTheBinade) {
  EXPECT_EQ(ulp_in_format(DType::kF64, 1.0), 0x1p-52);
  EXPECT_EQ(ulp_in_format(DType::kF32, 1.0), 0x1p-23);
  EXPECT_EQ(ulp_in_format(DType::kF32, -1.75), 0x1p-23);
  EXPECT_EQ(ulp_in_format(DType::kF32, 2.0), 0x1p-22);
  EXPECT_EQ(ulp_in_format(DType::kBF16, 1.0), 0x1p-7);
  EXPECT_EQ(ulp_in_format(DType::kBF16, 20.0), 0.125);
  EXPECT_EQ(ulp_in_format(DType::kF8E4M3, 1.0), 0.125);
  EXPECT_EQ(ulp_in_format(DType::kF8E4M3, 300.0), 32.0);
}

TEST(UlpInFormat, IsTheSubnormalStepNearZero) {
  EXPECT_EQ(ulp_in_format(DType::kF64, 0.0), 0x1p-1074);
  EXPECT_EQ(ulp_in_format(DType::kF32, 0.0), 0x1p-149);
  EXPECT_EQ(ulp_in_format(DType::kF32, 1e-42), 0x1p-149);
  EXPECT_EQ(ulp_in_format(DType::kBF16, 0.0), 0x1p-133);
  EXPECT_EQ(ulp_in_format(DType::kF8E4M3, 0x1p-8), 0x1p-9);
}

TEST(UlpInFormat, IsTheLargestStepBeyondTheRange) {
  EXPECT_EQ(ulp_in_format(DType::kF8E4M3, 1e6), 32.0);
  EXPECT_EQ(ulp_in_format(DType::kBF16, kInf), 0x1p120);
  EXPECT_EQ(ulp_in_format(DType::kF32, 1e300), 0x1p104);
}

}  // namespace
}  // namespace reference
