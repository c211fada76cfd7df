#include "reference/ops/head.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
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
