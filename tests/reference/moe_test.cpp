#include "reference/ops/moe.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

HandMadeOp op_of_kind(model::OpKind kind) {
  HandMadeOp op;
  op.op.kind = kind;
  op.config().hidden_size = 1;
  return op;
}

// silu(1) = 0.7310586 = 187.151/256. Times 129/128: 188.613/256 -> 189/256. Rounded first to 187/256: 188.461/256 ->
// 188/256.
TEST(Swiglu, BetweenRounding_IsUpToTheRule) {
  auto op = op_of_kind(model::OpKind::kSwiglu);
  EXPECT_EQ(numbers(op.run({bf16({1, 1}, {1}), bf16({1, 1}, {129.0f / 128})})), Numbers{189.0 / 256});
  op.rules.swiglu = SwigluRule::kBf16Steps;
  EXPECT_EQ(numbers(op.run({bf16({1, 1}, {1}), bf16({1, 1}, {129.0f / 128})})), Numbers{188.0 / 256});
}

// silu(0) = 0; silu(-128) = -128 exp(-128) = -3.3e-54, below every FP32 number; silu(128) = 128.
TEST(Swiglu, ZeroAndFarEnds_AreFinite) {
  const auto y =
      numbers(op_of_kind(model::OpKind::kSwiglu).run({bf16({1, 3}, {0, -128, 128}), bf16({1, 3}, {5, 5, 0.5f})}));
  EXPECT_EQ(y, (Numbers{0, 0, 64}));
}

// 0.73105857863000488 * 3 in double.
TEST(Swiglu, ExactMode_RoundsNothing) {
  auto op = op_of_kind(model::OpKind::kSwiglu);
  op.rules = exact_rules();
  EXPECT_NEAR(numbers(op.run({f64({1, 1}, {1}), f64({1, 1}, {3})}))[0], 2.19317573589001464, 1e-15);
}

TEST(Swiglu, SizesDiffer_Throws) {
  EXPECT_THROW((void)op_of_kind(model::OpKind::kSwiglu).run({bf16({1, 2}, {1, 1}), bf16({1, 1}, {1})}),
               model::CheckError);
}

// Token 0 chose experts 3 and 1 (weights 0.5 and 2), token 1 experts 0 and 3 (1 and 4): 2 * 10 + 0.5 * 100 = 70, 1 * 7
// + 4 * 200 = 807. Expert 2 was chosen by nobody.
TEST(Combine, EveryRow_MeetsTheWeightOfItsSlot) {
  const auto sum = op_of_kind(model::OpKind::kCombine)
                       .run({i32({2, 2}, {3, 1, 0, 3}), f32({2, 2}, {0.5f, 2, 1, 4}), {}},
                            {bf16({1, 1}, {7}), bf16({1, 1}, {10}), {}, bf16({2, 1}, {100, 200})});
  EXPECT_EQ(sum.dtype, model::DType::kF32);
  EXPECT_EQ(numbers(sum), (Numbers{70, 807}));
}

// 2^24 + 1 is 2^24 in FP32. Ascending ids: 2^24 + 1 - 2^24 = 0. In the order of the slots, all but the first of these
// would give 1, as the same outputs do under other ids.
TEST(Combine, Order_IsTheExpertsWhateverTheSlots) {
  for (const std::vector<int32_t>& slots :
       {std::vector<int32_t>{0, 1, 2}, {0, 2, 1}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}}) {
    const auto sum = op_of_kind(model::OpKind::kCombine)
                         .run({i32({1, 3}, slots), f32({1, 3}, {1, 1, 1}), {}},
                              {bf16({1, 1}, {0x1p24f}), bf16({1, 1}, {1}), bf16({1, 1}, {-0x1p24f})});
    EXPECT_EQ(numbers(sum), Numbers{0});
  }
  const auto other_ids = op_of_kind(model::OpKind::kCombine)
                             .run({i32({1, 3}, {0, 1, 2}), f32({1, 3}, {1, 1, 1}), {}},
                                  {bf16({1, 1}, {0x1p24f}), bf16({1, 1}, {-0x1p24f}), bf16({1, 1}, {1})});
  EXPECT_EQ(numbers(other_ids), Numbers{1});
}

// BF16 numbers from 256 on are 2 apart. Experts 0 and 1 on one rank: 256 + 1 is a tie and goes to 256; 2 and 3 on the other: 1 + 1.
// Together 258; one sum is 259. Three ranks have experts {0}, {1}, {2, 3}: 256 + 1 + 2, then a tie that goes to 260.
TEST(Combine, RanksThatAddUpTheirExperts_RoundTheirSums) {
  auto op = op_of_kind(model::OpKind::kCombine);
  op.config().n_routed_experts = 4;
  const std::vector<model::TensorView> inputs{i32({1, 4}, {3, 0, 2, 1}), f32({1, 4}, {1, 1, 1, 1}), {}};
  const std::vector<model::TensorView> outputs{
      bf16({1, 1}, {256}), bf16({1, 1}, {1}), bf16({1, 1}, {1}), bf16({1, 1}, {1})};
  EXPECT_EQ(numbers(op.run(inputs, outputs)), Numbers{259});
  for (const auto& [ranks, expected] : {std::pair{2, 258.0}, {3, 260.0}}) {
    op.rules.expert_ranks = ranks;
    const auto sum = op.run(inputs, outputs);
    EXPECT_EQ(sum.dtype, model::DType::kBF16);
    EXPECT_EQ(numbers(sum), Numbers{expected}) << ranks << " ranks";
  }
}

// FP32(1/3) * 1: BF16(1/3) = 171/512; twice that is a BF16 number. FP32: FP32(1/3) + FP32(1/3).
TEST(Combine, Bf16Rule_RoundsProductsAndSums) {
  auto op = op_of_kind(model::OpKind::kCombine);
  const float third = 1.0f / 3;
  const std::vector<model::TensorView> inputs{i32({1, 2}, {0, 1}), f32({1, 2}, {third, third}), {}};
  const std::vector<model::TensorView> outputs{bf16({1, 1}, {1}), bf16({1, 1}, {1})};
  EXPECT_EQ(numbers(op.run(inputs, outputs)), Numbers{2 * static_cast<double>(third)});
  op.rules.combine = CombineRule::kBf16;
  const auto sum = op.run(inputs, outputs);
  EXPECT_EQ(sum.dtype, model::DType::kBF16);
  EXPECT_EQ(numbers(sum), Numbers{342.0 / 512});
}

// The running sum: 1 + 2^-8 is a tie and stays 1, twice. In FP32 it becomes 1 + 2^-7.
TEST(Combine, Bf16Rule_RoundsTheRunningSum) {
  auto op = op_of_kind(model::OpKind::kCombine);
  op.rules.combine = CombineRule::kBf16;
  const std::vector<model::TensorView> inputs{i32({1, 3}, {0, 1, 2}), f32({1, 3}, {1, 1, 1}), {}};
  const std::vector<model::TensorView> outputs{bf16({1, 1}, {1}), bf16({1, 1}, {0x1p-8f}), bf16({1, 1}, {0x1p-8f})};
  EXPECT_EQ(numbers(op.run(inputs, outputs)), Numbers{1});
  op.rules.combine = CombineRule::kFp32;
  EXPECT_EQ(numbers(op.run(inputs, outputs)), Numbers{1 + 0x1p-7});
}

TEST(Combine, MissingRowOfAnExpert_Throws) {
  EXPECT_THROW((void)op_of_kind(model::OpKind::kCombine)
                   .run({i32({2, 1}, {0, 0}), f32({2, 1}, {1, 1}), {}}, {bf16({1, 1}, {1})}),
               model::CheckError);
}

// Routed 1 + 2^-8 (FP32) plus shared 2^-9 lies past the tie: 1 + 2^-7. Routed rounded first would be 1, and stay 1.
TEST(MoeOutput, RoutedAndShared_AreRoundedOnce) {
  const auto op = op_of_kind(model::OpKind::kMoeOutput);
  const auto sum = op.run({f32({1, 1}, {1 + 0x1p-8f}), bf16({1, 1}, {0x1p-9f})});
  EXPECT_EQ(sum.dtype, model::DType::kBF16);
  EXPECT_EQ(numbers(sum), Numbers{1 + 0x1p-7});
}

TEST(MoeOutput, WithoutASharedExpert_TheRoutedSumIsRounded) {
  EXPECT_EQ(numbers(op_of_kind(model::OpKind::kMoeOutput).run({f32({1, 2}, {1 + 0x1p-8f, 1 + 0x1.8p-8f})})),
            (Numbers{1, 1 + 0x1p-7}));
}

TEST(MoeOutput, ExactMode_RoundsNothing) {
  auto op = op_of_kind(model::OpKind::kMoeOutput);
  op.rules = exact_rules();
  EXPECT_EQ(numbers(op.run({f64({1, 1}, {1}), f64({1, 1}, {0x1p-40})})), Numbers{1 + 0x1p-40});
}

}  // namespace
}  // namespace reference
