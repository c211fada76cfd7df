#include "reference/ops/residual.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

HandMadeOp op_of_kind(model::OpKind kind) {
  HandMadeOp op;
  op.op.kind = kind;
  return op;
}

// BF16 steps are 2^-7 above 1. The layer input 1 + 2^-8 is a tie and becomes 1; 1 + 2^-8 (o_proj) is a tie again: 1.
// Without the first rounding the sum 1 + 2^-7 would have been kept.
TEST(ResidualAdd, TheLayerInput_IsRoundedBeforeTheSum) {
  const auto sum = op_of_kind(model::OpKind::kResidualAdd).run({bf16({1, 1}, {0x1p-8f}), f32({1, 1}, {1 + 0x1p-8f})});
  EXPECT_EQ(sum.dtype, model::DType::kBF16);
  EXPECT_EQ(numbers(sum), Numbers{1});
}

// 1 + 2^-8 + 2^-9 lies past the tie: 1 + 2^-7. 3 + 2^-7 is a tie (steps of 2^-6 above 2): to even, 3. 3 + 3 * 2^-7: to
// even, 3 + 2^-5.
TEST(ResidualAdd, TheSum_IsRoundedToNearestEven) {
  const auto sum = op_of_kind(model::OpKind::kResidualAdd)
                       .run({bf16({1, 3}, {1.5f * 0x1p-8f, 0x1p-7f, 3 * 0x1p-7f}), bf16({1, 3}, {1, 3, 3})});
  EXPECT_EQ(numbers(sum), (Numbers{1 + 0x1p-7, 3, 3 + 0x1p-5}));
}

TEST(ResidualSum, BeforeItIsStored_IsTheFp32Sum) {
  const auto sum = residual_sum<float>({}, bf16({1, 1}, {0x1p-10f}), f32({1, 1}, {1 + 0x1p-8f}));
  EXPECT_EQ(sum, Reused<float>{1 + 0x1p-10f});
}

TEST(LayerOutput, Pair_KeepsTheFp32Sum) {
  const auto output = op_of_kind(model::OpKind::kLayerOutput).run({bf16({1, 1}, {1}), bf16({1, 1}, {0x1p-20f})});
  EXPECT_EQ(output.dtype, model::DType::kF32);
  EXPECT_EQ(numbers(output), Numbers{1 + 0x1p-20});
}

TEST(LayerOutput, Rounded_StoresBf16) {
  auto op = op_of_kind(model::OpKind::kLayerOutput);
  op.rules.residual = ResidualRule::kRounded;
  const auto output = op.run({bf16({1, 2}, {1, 1}), bf16({1, 2}, {0x1p-20f, 0x1.8p-8f})});
  EXPECT_EQ(output.dtype, model::DType::kBF16);
  EXPECT_EQ(numbers(output), (Numbers{1, 1 + 0x1p-7}));
}

TEST(Residual, ExactMode_RoundsNeitherInputNorSum) {
  for (const auto kind : {model::OpKind::kResidualAdd, model::OpKind::kLayerOutput}) {
    auto op = op_of_kind(kind);
    op.rules = exact_rules();
    EXPECT_EQ(numbers(op.run({f64({1, 1}, {0x1p-40}), f64({1, 1}, {1 + 0x1p-20})})), Numbers{1 + 0x1p-20 + 0x1p-40});
  }
}

TEST(Residual, SizesDiffer_Throws) {
  for (const auto kind : {model::OpKind::kResidualAdd, model::OpKind::kLayerOutput}) {
    EXPECT_THROW((void)op_of_kind(kind).run({bf16({1, 2}, {1, 1}), bf16({1, 1}, {1})}), model::CheckError);
  }
}

}  // namespace
}  // namespace reference
