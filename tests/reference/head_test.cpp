#include "reference/ops/head.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
#include "reference/tensor_core/linear_recipes.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

HandMadeOp logits_op(model::OpKind kind) {
  HandMadeOp op;
  op.op.kind = kind;
  op.set_weight(bf16({2, 2}, {1, 1, 1, -1}));
  return op;
}

// 1 + 2^-10 and 1 - 2^-10 are FP32 numbers; in BF16 both are 1.
TEST(Head, Logits_AreFp32OrBf16ByTheRule) {
  auto op = logits_op(model::OpKind::kHead);
  const auto wide = op.run({bf16({1, 2}, {1, 0x1p-10f})});
  EXPECT_EQ(wide.dtype, model::DType::kF32);
  EXPECT_EQ(numbers(wide), (Numbers{1 + 0x1p-10, 1 - 0x1p-10}));
  op.rules.head = HeadRule::kBf16;
  op.rules.router = RouterRule::kFp32;
  const auto narrow = op.run({bf16({1, 2}, {1, 0x1p-10f})});
  EXPECT_EQ(narrow.dtype, model::DType::kBF16);
  EXPECT_EQ(numbers(narrow), (Numbers{1, 1}));
}

TEST(RouterLogits, FollowTheRouterRule) {
  auto op = logits_op(model::OpKind::kRouterLogits);
  op.rules.head = HeadRule::kBf16;
  EXPECT_EQ(numbers(op.run({bf16({1, 2}, {1, 0x1p-10f})})), (Numbers{1 + 0x1p-10, 1 - 0x1p-10}));
  op.rules.router = RouterRule::kBf16;
  EXPECT_EQ(numbers(op.run({bf16({1, 2}, {1, 0x1p-10f})})), (Numbers{1, 1}));
}

// A gate stored in FP32 keeps its bits: 1 + 2^-20 is no BF16 number.
TEST(RouterLogits, Fp32Gate_IsNotRounded) {
  HandMadeOp op;
  op.op.kind = model::OpKind::kRouterLogits;
  op.set_weight(f32({1, 1}, {1 + 0x1p-20f}));
  EXPECT_EQ(numbers(op.run({bf16({1, 1}, {2})})), Numbers{2 + 0x1p-19});
}

// Beside 1, Hopper cuts every product of 2^-26 away, and what is left, 1 + 2^-8, is halfway between two BF16 numbers and goes to the even
// one. An FP32 sum that adds the fourteen small ones first goes to the next.
TEST(BothLogits, InBf16_TakeTheStepsOfTheRecipe) {
  const auto recipe = tensor_core::find_linear_recipe("hopper");
  std::vector<float> x(16, 0x1p-13f);
  std::vector<float> w(16, 0x1p-13f);
  x[0] = w[0] = 1;
  x[1] = 0x1p-4f;
  w[1] = 0x1p-4f;
  for (const auto kind : {model::OpKind::kHead, model::OpKind::kRouterLogits}) {
    HandMadeOp op;
    op.op.kind = kind;
    op.set_weight(bf16({1, 16}, w));
    op.rules = v3_demo_rules(Gemm::kBf16, model::ScaleFormat::kFp32);
    EXPECT_EQ(numbers(op.run({bf16({1, 16}, x)})), Numbers{1 + 0x1p-7});
    op.rules = with_recipe(op.rules, recipe);
    EXPECT_EQ(numbers(op.run({bf16({1, 16}, x)})), Numbers{1});
    // What is stored in FP32 does not come from tensor cores.
    op.rules.head = HeadRule::kFp32;
    op.rules.router = RouterRule::kFp32;
    EXPECT_GT(numbers(op.run({bf16({1, 16}, x)}))[0], 1 + 0x1p-8);
  }
}

TEST(Head, ExactMode_IsFp64) {
  auto op = logits_op(model::OpKind::kHead);
  op.rules = exact_rules();
  EXPECT_EQ(numbers(op.run({f64({1, 2}, {1, 0x1p-40})})), (Numbers{1 + 0x1p-40, 1 - 0x1p-40}));
}

TEST(Head, WidthsDiffer_Throws) {
  EXPECT_THROW((void)logits_op(model::OpKind::kHead).run({bf16({1, 3}, {1, 1, 1})}), model::CheckError);
}

}  // namespace
}  // namespace reference
