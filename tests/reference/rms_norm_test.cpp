#include "reference/ops/rms_norm.hpp"

#include <gtest/gtest.h>

#include <array>

#include "model/check.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

HandMadeOp norm_op(const std::vector<float>& gain, double eps) {
  HandMadeOp norm;
  norm.op.kind = model::OpKind::kRmsNorm;
  norm.set_weight(bf16({static_cast<int64_t>(gain.size())}, gain));
  norm.config().rms_norm_eps = eps;
  return norm;
}

// x = (3, 4), gain 1, eps 0: rms = sqrt(12.5); 3 / rms = 0.848528, 4 / rms = 1.131371 (by hand).
// BF16 neighbours: 0.84765625 and 0.8515625; 1.1328125 and 1.125.
TEST(RmsNorm, TwoElements_MatchHandComputation) {
  EXPECT_EQ(numbers(norm_op({1, 1}, 0).run({bf16({1, 2}, {3, 4})})), (Numbers{0.84765625, 1.1328125}));
}

// BF16 steps are 1/128 in [1, 2). Once: 1.131371 * 1.03125 = 1.166726 -> 149/128. Twice: 145/128 * 1.03125 = 1.168213
// -> 150/128.
TEST(RmsNorm, GainAfterTheFirstRounding_DiffersFromGainBeforeIt) {
  auto norm = norm_op({1.03125f, 1.03125f}, 0);
  EXPECT_EQ(numbers(norm.run({bf16({1, 2}, {3, 4})}))[1], 149.0 / 128);
  norm.rules.norm = NormRounding::kTwice;
  EXPECT_EQ(numbers(norm.run({bf16({1, 2}, {3, 4})}))[1], 150.0 / 128);
}

// mean = 2^-20, eps = 3 * 2^-20: rms = sqrt(4 * 2^-20) = 2^-9, so 2^-10 becomes 1/2. With eps outside the root it would
// be near 1.
TEST(RmsNorm, Epsilon_IsAddedToTheMeanSquare) {
  const float x = 0x1p-10f;
  EXPECT_EQ(numbers(norm_op({1, 1}, 3 * 0x1p-20).run({bf16({1, 2}, {x, -x})})), (Numbers{0.5, -0.5}));
}

TEST(RmsNorm, ZeroRow_IsZero) {
  for (const auto rounding : {NormRounding::kOnce, NormRounding::kTwice}) {
    auto norm = norm_op({1, -2, 3}, 1e-6);
    norm.rules.norm = rounding;
    EXPECT_EQ(numbers(norm.run({bf16({1, 3}, {0, 0, 0})})), (Numbers{0, 0, 0}));
  }
}

TEST(RmsNorm, NanInARow_StaysInThatRow) {
  const auto y = numbers(norm_op({1, 1}, 0).run({bf16({3, 2}, {3, 4, kNaN, 4, 3, 4})}));
  EXPECT_EQ(y[0], 0.84765625);
  EXPECT_TRUE(std::isnan(y[2]) && std::isnan(y[3]));
  EXPECT_EQ(y[4], 0.84765625);
}

// The norm of the compressed keys reads the first kv_lora columns of kv_a.
TEST(RmsNorm, RowsLongerThanTheGain_AreCut) {
  const auto y = norm_op({1, 1}, 0).run({bf16({2, 3}, {3, 4, kNaN, 4, 3, kNaN})});
  EXPECT_EQ(y.shape, (model::Shape{2, 2}));
  EXPECT_EQ(numbers(y), (Numbers{0.84765625, 1.1328125, 1.1328125, 0.84765625}));
}

// o_proj = 1 everywhere, layer input (2^-8, 0, 0, 0). Unrounded sum (1 + 2^-8, 1, 1, 1): rms = sqrt((1.0078278 + 3) /
// 4) = 1.000978, first element 1.0039063 / 1.000978 * 255/128 = 255.746/128 -> 2. Rounded to BF16 first, the tie 1 +
// 2^-8 becomes 1: 255/128. The stored sum, first of the three inputs, is not read: it is NaN here.
TEST(RmsNorm, AfterAttention_ReadsTheUnroundedSumOrTheRoundedOne) {
  auto norm = norm_op({255.0f / 128, 1, 1, 1}, 0);
  const std::vector<model::TensorView> inputs{
      bf16({1, 4}, {kNaN, kNaN, kNaN, kNaN}), bf16({1, 4}, {1, 1, 1, 1}), f32({1, 4}, {0x1p-8f, 0, 0, 0})};
  EXPECT_EQ(numbers(norm.run(inputs)), (Numbers{2, 1, 1, 1}));
  norm.rules.residual = ResidualRule::kRounded;
  EXPECT_EQ(numbers(norm.run(inputs)), (Numbers{255.0 / 128, 1, 1, 1}));
}

// 3 / sqrt(12.5) and 4 / sqrt(12.5) to 17 digits.
TEST(RmsNorm, ExactMode_RoundsNothing) {
  auto norm = norm_op({1, 1}, 0);
  norm.rules = exact_rules();
  const auto y = norm.run({f64({1, 2}, {3, 4})});
  EXPECT_EQ(y.dtype, model::DType::kF64);
  EXPECT_DOUBLE_EQ(numbers(y)[0], 0.84852813742385703);
  EXPECT_DOUBLE_EQ(numbers(y)[1], 1.1313708498984760);
}

TEST(RmsNorm, LengthsDiffer_Throws) {
  const std::array<float, 2> x{3, 4};
  const std::array<float, 1> gain{1};
  std::array<float, 2> y{};
  EXPECT_THROW(rms_norm_row<float>({}, 0, x, gain, y), model::CheckError);
}

}  // namespace
}  // namespace reference
