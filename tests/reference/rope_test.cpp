#include "reference/rope.hpp"

#include <gtest/gtest.h>

#include <bit>

#include "model/config.hpp"

namespace reference {
namespace {

model::ModelConfig v3() {
  return model::built_in_config("deepseek-v3");
}

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) {
    bits.push_back(std::bit_cast<uint32_t>(value));
  }
  return bits;
}

// d = 64, base 10000, L0 = 4096, factor 40, betas 32 and 1: low 10, high 23. Independently computed in FP32 with
// correctly rounded powers (numpy and mpmath); equal to the table of the published order.
TEST(InverseFrequencies, DeepSeekV3_MatchTheTable) {
  const std::vector<uint32_t> expected{
      0x3f800000, 0x3f3ff911, 0x3f0ff59a, 0x3ed7e89b, 0x3ea1e89b, 0x3e72d423, 0x3e361887, 0x3e088d77,
      0x3dcccccd, 0x3d99940d, 0x3d6655c2, 0x3d1fc5ba, 0x3cdc321b, 0x3c968dc3, 0x3c4bf283, 0x3c088d77,
      0x3bb43959, 0x3b697066, 0x3b136a16, 0x3ab3a2cd, 0x3a4f3e37, 0x39d99312, 0x393a7753, 0x380bd472,
      0x37d1b718, 0x379d43a3, 0x376bdcf0, 0x3730df51, 0x3704a2b3, 0x36c6ecde, 0x36952c42, 0x365fba50};
  EXPECT_EQ(bits_of(inverse_frequencies(v3(), FrequencyOrder::kOfficial)), expected);
}

// 1 / (factor * power) instead of (1 / power) / factor: by the same calculator, elements 23, 24, 29 and 31 are one step
// lower.
TEST(InverseFrequencies, HuggingFaceOrder_DiffersInFourElements) {
  auto expected = bits_of(inverse_frequencies(v3(), FrequencyOrder::kOfficial));
  for (const size_t i : {23, 24, 29, 31}) {
    --expected[i];
  }
  EXPECT_EQ(bits_of(inverse_frequencies(v3(), FrequencyOrder::kHuggingFace)), expected);
}

// FP32(1 / FP32(10000^(2i/64))), by the same calculator: elements 0, 11, 16 and 31.
TEST(InverseFrequencies, WithoutYarn_ArePlainRope) {
  auto config = v3();
  config.yarn.reset();
  for (const auto order : {FrequencyOrder::kOfficial, FrequencyOrder::kHuggingFace}) {
    const auto bits = bits_of(inverse_frequencies(config, order));
    ASSERT_EQ(bits.size(), 32u);
    EXPECT_EQ(bits[0], 0x3f800000u);
    EXPECT_EQ(bits[11], 0x3d2cba15u);
    EXPECT_EQ(bits[16], 0x3c23d70au);
    EXPECT_EQ(bits[31], 0x390bd472u);
  }
}

// Base 10^4, d = 8, L0 = 64, betas 32 and 1: corr(32) = 8 ln(64 / 64 pi) / (2 ln 10^4) = -0.497, low 0; corr(1) = 8 *
// ln(64 / 2 pi) / 18.42 = 1.008, high 2. Ramp 0, 1/2, 1, 1; factor 4: frequencies 1, 0.1 * (1/8 + 1/2) = 0.0625, 0.01 /
// 4, 0.001 / 4.
TEST(InverseFrequencies, SmallConfig_MatchesHandComputation) {
  model::ModelConfig config;
  config.qk_rope_head_dim = 8;
  config.yarn = model::YarnConfig{.factor = 4, .original_max_position_embeddings = 64};
  const auto frequencies = inverse_frequencies(config, FrequencyOrder::kOfficial);
  ASSERT_EQ(frequencies.size(), 4u);
  EXPECT_FLOAT_EQ(frequencies[0], 1);
  EXPECT_FLOAT_EQ(frequencies[1], 0.0625f);
  EXPECT_FLOAT_EQ(frequencies[2], 0.0025f);
  EXPECT_FLOAT_EQ(frequencies[3], 0.00025f);
}

// Low and high both 0 (L0 = 2: both corrections are below 0): the ramp is a step after element 0, not a division by 0.
TEST(InverseFrequencies, EqualEndsOfTheRamp_AreKeptApart) {
  model::ModelConfig config;
  config.qk_rope_head_dim = 4;
  config.yarn = model::YarnConfig{.factor = 4, .original_max_position_embeddings = 2};
  const auto frequencies = inverse_frequencies(config, FrequencyOrder::kOfficial);
  EXPECT_EQ(frequencies[0], 1.0f);
  EXPECT_FLOAT_EQ(frequencies[1], 0.01f / 4);
}

// 192^-0.5 * (0.1 ln 40 + 1)^2, to 13 digits; without YaRN 192^-0.5.
TEST(SoftmaxScale, DeepSeekV3_HasTheYarnCorrection) {
  auto config = v3();
  EXPECT_NEAR(softmax_scale(config), 0.1352337788609, 1e-13);
  config.yarn.reset();
  EXPECT_NEAR(softmax_scale(config), 0.0721687836487, 1e-13);
}

// mscale 0.5, mscale_all_dim 1.2, factor 40 (mpmath): softmax scale (0.12 ln 40 + 1)^2 / sqrt(192) = 0.1502037234792;
// magnitude (0.05 ln 40 + 1) / (0.12 ln 40 + 1) = 0.8210107917504, at position 0 the cosine itself.
TEST(SoftmaxScale, UsesMscaleAllDim_AndTheRotationTheRatio) {
  auto config = v3();
  config.yarn->mscale = 0.5;
  config.yarn->mscale_all_dim = 1.2;
  EXPECT_NEAR(softmax_scale(config), 0.1502037234792, 1e-13);
  const auto turns = rotations(config, inverse_frequencies(config, FrequencyOrder::kOfficial), 0);
  EXPECT_EQ(turns[5].cos, 0.8210107917504f);
  EXPECT_EQ(turns[5].sin, 0.0f);
}

TEST(SoftmaxScale, FactorOne_ChangesNothing) {
  auto config = v3();
  config.yarn->factor = 1;
  config.yarn->mscale = 0.5;
  EXPECT_NEAR(softmax_scale(config), 0.0721687836487, 1e-13);
  EXPECT_EQ(rotations(config, {1.0f}, 0)[0].cos, 1.0f);
}

// cos 1 = 0.5403023, sin 1 = 0.8414710; cos 3 = -0.9899925, sin 3 = 0.1411200; all correctly rounded (mpmath).
TEST(Rotations, CosAndSin_AreCorrectlyRounded) {
  model::ModelConfig config;
  EXPECT_EQ(rotations(config, {1.0f}, 1)[0].cos, 0x1.14a280p-1f);
  EXPECT_EQ(rotations(config, {1.0f}, 1)[0].sin, 0x1.aed548p-1f);
  EXPECT_EQ(rotations(config, {1.0f}, 3)[0].cos, -0x1.fae04cp-1f);
  EXPECT_EQ(rotations(config, {1.0f}, 3)[0].sin, 0x1.210386p-3f);
}

}  // namespace
}  // namespace reference
