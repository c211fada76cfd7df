#include "reference/quantize.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace reference {
namespace {

constexpr QuantizeRule kReciprocal{};
constexpr QuantizeRule kDivide{.scale = ScaleFormula::kDivide};
constexpr QuantizeRule kUe8m0{.format = model::ScaleFormat::kUe8m0};

// FP32(1/448) = 0x1.24924ap-9 (1/448 = 2^-9 * 1.142857..., period 001 in binary), FP32(1e-4) * that = 0x1.df595ap-23 by
// an independent FP32 calculator: a zero block does not divide by zero.
TEST(Quantize, ZeroBlock_HasTheSmallestScaleAndZeroCodes) {
  const auto row = quantize_row(kReciprocal, std::vector<float>(128, 0.0f));
  EXPECT_EQ(row.scales, std::vector<float>{0x1.df595ap-23f});
  EXPECT_EQ(row.codes, std::vector<float>(128, 0.0f));
}

// amax below 1e-4 counts as 1e-4: the element 5e-5 has the code 448 / 2 = 224.
TEST(Quantize, BlockBelowTheClamp_DoesNotReach448) {
  const auto row = quantize_row(kReciprocal, std::vector<float>{5e-5f, -2.5e-5f});
  EXPECT_EQ(row.scales, std::vector<float>{0x1.df595ap-23f});
  EXPECT_EQ(row.codes, (std::vector<float>{224, -112}));
}

// 3 * FP32(1/448) and 3 / 448, each rounded to FP32, differ in the last bits; 7 / 448 = 2^-6 exactly in both.
TEST(Quantize, ScaleByReciprocal_DiffersFromScaleByDivision) {
  EXPECT_EQ(activation_scale(kReciprocal, 3), 0x1.b6db70p-8f);
  EXPECT_EQ(activation_scale(kDivide, 3), 0x1.b6db6ep-8f);
  EXPECT_EQ(activation_scale(kReciprocal, 7), 0x1p-6f);
  EXPECT_EQ(activation_scale(kDivide, 7), 0x1p-6f);
}

// amax 31, x = 31 * 3 / 128 = 0.7265625: x / s is 10.499999 or 10.500001, on both sides of the tie between 10 and 11.
TEST(Quantize, ScaleFormula_CanChangeACode) {
  const std::vector<float> block{31, 0.7265625f};
  EXPECT_EQ(quantize_row(kReciprocal, block).codes, (std::vector<float>{448, 10}));
  EXPECT_EQ(quantize_row(kDivide, block).codes, (std::vector<float>{448, 11}));
}

// amax 1, s = FP32(1/448): x / s = 0x1.100002p+1, just past the tie 2.125; x * FP32(1/s) = 2.125, to even. From an FP32
// calculator.
TEST(Quantize, CodeByReciprocal_CanDifferFromCodeByDivision) {
  constexpr QuantizeRule kCodeByReciprocal{.code = CodeFormula::kTimesReciprocal};
  const float x = 0x1.36db70p-8f;
  EXPECT_EQ(activation_code(kReciprocal, x, block_scale(kReciprocal, 1)), 2.25f);
  EXPECT_EQ(activation_code(kCodeByReciprocal, x, block_scale(kCodeByReciprocal, 1)), 2.0f);
}

// amax 56 gives exactly 2^-3. One FP32 step more rounds up to 2^-2, one less stays at 2^-3.
TEST(Quantize, Ue8m0_RoundsTheScaleUpToAPowerOfTwo) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(activation_scale(kUe8m0, 56), 0.125f);
  EXPECT_EQ(activation_scale(kUe8m0, std::nextafter(56.0f, infinity)), 0.25f);
  EXPECT_EQ(activation_scale(kUe8m0, std::nextafter(56.0f, 0.0f)), 0.125f);
  EXPECT_EQ(activation_scale(kUe8m0, 0), 0x1p-22f);  // 2.23e-7 lies between 2^-23 and 2^-22
}

// Scale 2^-2 for amax 57: 57 * 4 = 228, between the codes 224 and 240: 224.
TEST(Quantize, Ue8m0_LeavesTheTopCodesUnused) {
  const auto row = quantize_row(kUe8m0, std::vector<float>{57, 1});
  EXPECT_EQ(row.scales, std::vector<float>{0.25f});
  EXPECT_EQ(row.codes, (std::vector<float>{224, 4}));
}

TEST(Quantize, BeyondTheLargestCode_Saturates) {
  EXPECT_EQ(activation_code(kReciprocal, 1000, {.scale = 1, .factor = 1}), 448.0f);
  EXPECT_EQ(activation_code(kReciprocal, -464, {.scale = 1, .factor = 1}), -448.0f);
}

TEST(Quantize, LargestMagnitude_MayBeNegative) {
  const auto row = quantize_row(kReciprocal, std::vector<float>{1, -448});
  EXPECT_EQ(row.scales, std::vector<float>{1});
  EXPECT_EQ(row.codes, (std::vector<float>{1, -448}));
}

// Scale 1 in the first block (amax 448), 2 in the second: the boundary lies between elements 127 and 128.
TEST(Quantize, Blocks_HaveTheirOwnScales) {
  std::vector<float> x(130, 0.0f);
  x[127] = 448;
  x[128] = 896;
  x[129] = 2;
  const auto row = quantize_row(kReciprocal, x);
  EXPECT_EQ(row.scales, (std::vector<float>{1, 2}));
  EXPECT_EQ(row.codes[127], 448.0f);
  EXPECT_EQ(row.codes[128], 448.0f);
  EXPECT_EQ(row.codes[129], 1.0f);
}

// The two blocks around it keep their finite codes and scales.
TEST(Quantize, NanInABlock_StaysInThatBlock) {
  std::vector<float> x(3 * 128, 448.0f);
  x[200] = std::numeric_limits<float>::quiet_NaN();
  const auto row = quantize_row(kReciprocal, x);
  EXPECT_TRUE(std::isnan(row.codes[200]));
  for (const size_t i : {size_t{0}, size_t{127}, size_t{256}, size_t{383}}) {
    EXPECT_EQ(row.codes[i], 448.0f) << i;
  }
  EXPECT_EQ(row.scales[0], 1.0f);
  EXPECT_EQ(row.scales[2], 1.0f);
}

}  // namespace
}  // namespace reference
