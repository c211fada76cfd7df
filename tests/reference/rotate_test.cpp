#include "reference/ops/rotate.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

// Plain RoPE of two pairs with frequencies 1 and 10000^-0.5 = 0.01.
HandMadeOp rotate_op(model::OpKind kind, std::vector<model::SequenceStep> sequences) {
  HandMadeOp op;
  op.op.kind = kind;
  op.op.layer = 0;
  op.workload.sequences = std::move(sequences);
  op.config().qk_rope_head_dim = 4;
  op.config().qk_nope_head_dim = 1;
  op.config().kv_lora_rank = 2;
  op.config().num_attention_heads = 1;
  op.config().num_hidden_layers = 2;
  op.config().num_nextn_predict_layers = 2;
  return op;
}

// The pair (1, 0) becomes (cos, sin), the pair (0, 2) becomes (-2 sin, 2 cos). Angle 1: cos 0.5403023, sin 0.8414710:
// in BF16 138/256 = 0.5390625 or 139/256 = 0.54296875: the first; 215/256 = 0.83984375 or 216/256: the first (0.84147 *
// 256 = 215.417). Angle 0.01: -2 sin = -0.0199996662 (BF16 step 2^-13: -163.84 steps, -164/8192), 2 cos = 1.9999000 ->
// 2.
const Numbers kTurnedOnce{138.0 / 256, 215.0 / 256, -164.0 / 8192, 2};

TEST(RotateKey, PositionsZeroAndOne_MatchHandComputation) {
  const auto op = rotate_op(model::OpKind::kRotateKey, {{0, 2}});
  const auto rotated = op.run({bf16({2, 6}, {kNaN, kNaN, 1, 0, 0, 2, kNaN, kNaN, 1, 0, 0, 2})});
  EXPECT_EQ(rotated.shape, (model::Shape{2, 4}));
  Numbers expected{1, 0, 0, 2};
  expected.insert(expected.end(), kTurnedOnce.begin(), kTurnedOnce.end());
  EXPECT_EQ(numbers(rotated), expected);
}

// Interleaved pairs: (x0, x1) turn together. With halves, x0 would turn with x2.
TEST(RotateKey, Pairs_AreNeighbours) {
  const auto op = rotate_op(model::OpKind::kRotateKey, {{1, 1}});
  const auto y = numbers(op.run({bf16({1, 6}, {0, 0, 1, 0, 0, 0})}));
  EXPECT_EQ(y, (Numbers{138.0 / 256, 215.0 / 256, 0, 0}));
}

// Two heads of [nope | rope]; only the last four columns of each are read.
TEST(RotateQuery, EveryHead_IsTurnedByThePositionOfItsToken) {
  auto op = rotate_op(model::OpKind::kRotateQuery, {{1, 1}});
  op.config().num_attention_heads = 2;
  const auto rotated = op.run({bf16({1, 10}, {kNaN, 1, 0, 0, 2, kNaN, 2, 0, 0, 4})});
  EXPECT_EQ(rotated.shape, (model::Shape{1, 2, 4}));
  Numbers expected = kTurnedOnce;
  for (const double value : kTurnedOnce) {
    expected.push_back(2 * value);
  }
  EXPECT_EQ(numbers(rotated), expected);
}

// Each sequence has its own positions: the second starts at 0, the third at 1.
TEST(RotateKey, RaggedSequences_HaveTheirOwnPositions) {
  const auto op = rotate_op(model::OpKind::kRotateKey, {{1, 1}, {0, 1}, {1, 1}});
  std::vector<float> x;
  for (int t = 0; t < 3; ++t) {
    x.insert(x.end(), {0, 0, 1, 0, 0, 2});
  }
  const auto y = numbers(op.run({bf16({3, 6}, x)}));
  EXPECT_EQ(Numbers(y.begin(), y.begin() + 4), kTurnedOnce);
  EXPECT_EQ(Numbers(y.begin() + 4, y.begin() + 8), (Numbers{1, 0, 0, 2}));
  EXPECT_EQ(Numbers(y.begin() + 8, y.end()), kTurnedOnce);
}

// Layer 2 is the MTP layer of depth 0: row i works at position i + 1; layer 3 at i + 2.
TEST(RopePosition, MtpLayers_AreAheadByOnePlusTheirDepth) {
  auto op = rotate_op(model::OpKind::kRotateKey, {{0, 1}});
  op.op.layer = 1;
  EXPECT_EQ(rope_position(op.config(), op.op, 5), 5);
  op.op.layer = 3;
  EXPECT_EQ(rope_position(op.config(), op.op, 5), 7);
  op.op.layer = 2;
  EXPECT_EQ(rope_position(op.config(), op.op, 5), 6);
  EXPECT_EQ(numbers(op.run({bf16({1, 6}, {0, 0, 1, 0, 0, 2})})), kTurnedOnce);
}

// cos and sin stay FP32 numbers; the products are FP64: 3 * FP32(cos 1) has more bits than FP32 holds.
TEST(RotateKey, ExactMode_MultipliesFp32CosinesInFp64) {
  auto op = rotate_op(model::OpKind::kRotateKey, {{1, 1}});
  op.rules = exact_rules();
  const auto y = op.run({f64({1, 6}, {0, 0, 3, 0, 0, 0})});
  EXPECT_EQ(y.dtype, model::DType::kF64);
  EXPECT_EQ(numbers(y)[0], 3 * 0x1.14a28p-1);
  EXPECT_EQ(numbers(y)[1], 3 * 0x1.aed548p-1);
}

TEST(RotateKey, RowsAndTokensDiffer_Throws) {
  EXPECT_THROW((void)rotate_op(model::OpKind::kRotateKey, {{0, 2}}).run({bf16({1, 6}, {0, 0, 1, 0, 0, 2})}),
               model::CheckError);
}

}  // namespace
}  // namespace reference
