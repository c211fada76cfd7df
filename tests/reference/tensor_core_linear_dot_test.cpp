// A linear's sum along K: promotion of FP8 partial sums, and the order of BF16 steps. Expected values are worked out by hand.
#include "reference/tensor_core/linear_dot.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace reference::tensor_core {
namespace {

const Path& wgmma() {
  return *paths_for(find_recipe("hopper"), Format::kE4m3)[0];
}

// Block 0: -1, scales 1. Block 1: t = 1 + 2^-13, scales s = 1 + 2^-23 and 1. s t = 1 + 2^-13 + 2^-23 + 2^-36 has 37 bits: fused, all
// of what is left after the -1 survives; rounded before, the last term is gone.
float promoted(Promotion::Form form) {
  std::vector<uint32_t> a(256, 0);
  std::vector<uint32_t> b(256, 0);
  a[0] = 0xB8;             // -1
  b[0] = 0x38;             // 1
  a[128] = b[128] = 0x38;  // 1
  a[200] = 0x04;           // 2^-7, in another step of the block
  b[200] = 0x08;           // 2^-6
  Recipe recipe = find_recipe("hopper");
  recipe.promotion.form = form;
  const float s = 1 + std::ldexp(1.0f, -23);
  return fp8_linear_dot(recipe, wgmma(), Format::kE4m3, a, b, std::vector{1.0f, s}, std::vector{1.0f, 1.0f});
}

TEST(TensorCoreLinearDot, Promotion_FusesOnlyWhereItSays) {
  const float rounded = std::ldexp(1.0f, -13) + std::ldexp(1.0f, -23);
  const float fused = rounded + std::ldexp(1.0f, -36);
  EXPECT_EQ(promoted(Promotion::Form::kFusedScalesFirst), fused);
  EXPECT_EQ(promoted(Promotion::Form::kSeparateScalesFirst), rounded);
  EXPECT_EQ(promoted(Promotion::Form::kFusedActivationFirst), rounded);
  EXPECT_EQ(promoted(Promotion::Form::kSeparateActivationFirst), rounded);
}

// 256, then 2^-6 in each of the three steps that follow: below 2^(8 - 13) it is cut away on the unit, and kept by FP32.
TEST(TensorCoreLinearDot, PromotionInterval_DecidesWhatIsCut) {
  std::vector<uint32_t> a(128, 0);
  std::vector<uint32_t> b(128, 0);
  a[0] = 0x78;                          // 256
  a[32] = a[64] = a[96] = 0x08;         // 2^-6
  b[0] = b[32] = b[64] = b[96] = 0x38;  // 1
  Recipe recipe = find_recipe("hopper");
  const auto dot = [&](int every) {
    recipe.promotion.every = every;
    return fp8_linear_dot(recipe, wgmma(), Format::kE4m3, a, b, std::vector{1.0f}, std::vector{1.0f});
  };
  EXPECT_EQ(dot(128), 256.0f);
  EXPECT_EQ(dot(64), 256.0f + 2 * std::ldexp(1.0f, -6));
  EXPECT_EQ(dot(32), 256.0f + 3 * std::ldexp(1.0f, -6));
}

// One product in each step of 16: values of four steps.
float chained(std::vector<float> steps, Chunks chunks) {
  std::vector<uint32_t> a(64, 0);
  std::vector<uint32_t> b(64, 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    a[16 * i] = std::bit_cast<uint32_t>(steps[i]) >> 16;  // powers of two: exact in BF16
    b[16 * i] = 0x3F80;
  }
  Recipe recipe = find_recipe("hopper");
  recipe.chunks = chunks;
  return linear_dot(recipe, *paths_for(recipe, Format::kBf16)[0], Format::kBf16, a, b);
}

TEST(TensorCoreLinearDot, Chunks_DecideWhatCancels) {
  const float big = 16777216;  // 2^24: 1 more is cut away
  const std::vector<float> steps{1, 0, big, -big};
  EXPECT_EQ(chained(steps, {.num_splits = 1, .descending = false}), 0.0f);
  EXPECT_EQ(chained(steps, {.num_splits = 1, .descending = true}), 1.0f);
  EXPECT_EQ(chained(steps, {.num_splits = 2, .descending = false}), 1.0f);
}

}  // namespace
}  // namespace reference::tensor_core
