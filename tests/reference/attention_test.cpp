#include "reference/ops/attention.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

const float kLn3 = 1.0986122886681098f;

// One head: nope 2, rope 2, so that the scale is 1/2; v 1, kv_lora 1. A row of kv_b is [k k v], a row of the cache [c r
// r].
HandMadeOp attention_op(model::OpKind kind, std::vector<model::SequenceStep> sequences) {
  HandMadeOp op;
  op.op.kind = kind;
  op.workload.sequences = std::move(sequences);
  op.config().num_attention_heads = 1;
  op.config().qk_nope_head_dim = 2;
  op.config().qk_rope_head_dim = 2;
  op.config().v_head_dim = 1;
  op.config().kv_lora_rank = 1;
  return op;
}

// q rows [nope nope rope rope]: the rotated part comes from q_rope, so that q's own is NaN.
model::TensorView query(const std::vector<float>& nope) {
  std::vector<float> rows;
  for (const float value : nope) {
    rows.insert(rows.end(), {value, 0, kNaN, kNaN});
  }
  return f32({static_cast<int64_t>(nope.size()), 4}, rows);
}

model::TensorView query_rope(const std::vector<float>& rope) {
  std::vector<float> rows;
  for (const float value : rope) {
    rows.insert(rows.end(), {value, 0});
  }
  return f32({static_cast<int64_t>(rope.size()), 1, 2}, rows);
}

model::TensorView keys(const std::vector<float>& nope, const std::vector<float>& values) {
  std::vector<float> rows;
  for (size_t i = 0; i < nope.size(); ++i) {
    rows.insert(rows.end(), {nope[i], 0, values[i]});
  }
  return f32({static_cast<int64_t>(nope.size()), 3}, rows);
}

model::TensorView cache(const std::vector<float>& rope) {
  std::vector<float> rows;
  for (const float value : rope) {
    rows.insert(rows.end(), {kNaN, value, 0});
  }
  return f32({static_cast<int64_t>(rope.size()), 3}, rows);
}

// Token 1: score of key 0 is 0; of key 1 (ln 3 * 1 + ln 3 * 1) / 2 = ln 3. Softmax 1/4, 3/4. Token 0 sees key 0 alone:
// 1, 0.
TEST(AttentionProbs, TwoTokens_MatchHandComputation) {
  const auto op = attention_op(model::OpKind::kAttentionProbs, {{0, 2}});
  const auto probs = op.run({query({1, kLn3}), query_rope({1, kLn3}), keys({0, 1}, {kNaN, kNaN}), cache({0, 1})});
  EXPECT_EQ(probs.dtype, model::DType::kF32);
  EXPECT_EQ(probs.shape, (model::Shape{2, 1, 2}));
  const auto p = numbers(probs);
  EXPECT_EQ(p[0], 1);
  EXPECT_EQ(p[1], 0);
  EXPECT_NEAR(p[2], 0.25, 1e-7);
  EXPECT_NEAR(p[3], 0.75, 1e-7);
}

// Denominators with the scores themselves: exp(0) = 1 and exp(0) + exp(ln 3) = 4.
TEST(AttentionLse, TwoTokens_MatchHandComputation) {
  const auto op = attention_op(model::OpKind::kAttentionLse, {{0, 2}});
  const auto lse = numbers(op.run({query({1, kLn3}), query_rope({1, kLn3}), keys({0, 1}, {0, 0}), cache({0, 1})}));
  EXPECT_EQ(lse[0], 0);
  EXPECT_NEAR(lse[1], 1.3862943611198906, 2e-7);
}

// Scores 0 and 1000: exp of the difference only.
TEST(AttentionProbs, LargeScores_DoNotOverflow) {
  auto op = attention_op(model::OpKind::kAttentionProbs, {{1, 1}});
  const std::vector<model::TensorView> inputs{query({2000}), query_rope({0}), keys({0, 1}, {0, 0}), cache({0, 0})};
  EXPECT_EQ(numbers(op.run(inputs)), (Numbers{0, 1}));
  op.op.kind = model::OpKind::kAttentionLse;
  EXPECT_EQ(numbers(op.run(inputs)), Numbers{1000});
}

// Two cached positions, two new tokens: token 0 is at position 2 and sees keys 0..2; key 3, its future, is NaN.
TEST(AttentionProbs, WithACache_TokensSeeKeysUpToTheirPosition) {
  const auto op = attention_op(model::OpKind::kAttentionProbs, {{2, 2}});
  const auto p =
      numbers(op.run({query({1, 1}), query_rope({0, 0}), keys({0, 0, 0, kNaN}, {0, 0, 0, 0}), cache({0, 0, 0, kNaN})}));
  const double third = 1.0f / 3;
  EXPECT_EQ(Numbers(p.begin(), p.begin() + 4), (Numbers{third, third, third, 0}));
  EXPECT_TRUE(std::isnan(p[4]));
}

// Rows of the cache: 0, 1 of the first sequence, 2, 3 of the second. NaN in one leaves the other alone, whichever it
// is.
TEST(AttentionProbs, RaggedSequences_NeverSeeOneAnother) {
  const auto op = attention_op(model::OpKind::kAttentionProbs, {{0, 2}, {1, 1}});
  const auto q = query({0, 0, 0});
  const auto q_rope = query_rope({0, 0, 0});
  const auto first = numbers(op.run({q, q_rope, keys({0, 0, kNaN, kNaN}, {0, 0, 0, 0}), cache({0, 0, kNaN, kNaN})}));
  EXPECT_EQ(Numbers(first.begin(), first.begin() + 4), (Numbers{1, 0, 0.5, 0.5}));
  const auto second = numbers(op.run({q, q_rope, keys({kNaN, kNaN, 0, 0}, {0, 0, 0, 0}), cache({kNaN, kNaN, 0, 0})}));
  EXPECT_EQ(Numbers(second.begin() + 4, second.end()), (Numbers{0.5, 0.5}));
}

// The second sequence is shorter: its row is as wide as the longest and ends in a zero.
TEST(AttentionProbs, ShorterSequence_IsPaddedWithZeros) {
  const auto op = attention_op(model::OpKind::kAttentionProbs, {{1, 1}, {0, 1}});
  const auto probs = op.run({query({0, 0}), query_rope({0, 0}), keys({0, 0, 0}, {0, 0, 0}), cache({0, 0, 0})});
  EXPECT_EQ(numbers(probs), (Numbers{0.5, 0.5, 1, 0}));
}

// 1/4 * 1 + 3/4 * 3 = 5/2. The future value of token 0 is NaN, and so is its probability.
TEST(AttentionContext, Values_AreWeightedByTheirProbabilities) {
  const auto op = attention_op(model::OpKind::kAttentionContext, {{0, 2}});
  EXPECT_EQ(numbers(op.run({f32({2, 1, 2}, {1, kNaN, 0.25f, 0.75f}), keys({kNaN, kNaN}, {1, 3})})), (Numbers{1, 2.5}));
  EXPECT_EQ(numbers(op.run({f32({2, 1, 2}, {1, 0, 0, 1}), keys({0, 0}, {1, kNaN})}))[0], 1);
}

// BF16(0.3) = 77/256, BF16(0.7) = 179/256: 7 * 77/256 - 3 * 179/256 = 2/256. Unrounded: 0 up to FP32 rounding.
TEST(AttentionContext, Probabilities_AreRoundedByTheRule) {
  auto op = attention_op(model::OpKind::kAttentionContext, {{1, 1}});
  const std::vector<model::TensorView> inputs{f32({1, 1, 2}, {0.3f, 0.7f}), keys({0, 0}, {7, -3})};
  EXPECT_EQ(numbers(op.run(inputs)), Numbers{2.0 / 256});
  op.rules.probs = ProbsRule::kFp32;
  EXPECT_NEAR(numbers(op.run(inputs))[0], 0, 1e-6);
}

// A row of kv_b is [k0 k0 v0 | k1 k1 v1].
TEST(AttentionContext, EveryHead_TakesItsOwnValues) {
  auto op = attention_op(model::OpKind::kAttentionContext, {{0, 1}});
  op.config().num_attention_heads = 2;
  EXPECT_EQ(numbers(op.run({f32({1, 2, 1}, {1, 0.5f}), f32({1, 6}, {kNaN, kNaN, 5, kNaN, kNaN, 7})})),
            (Numbers{5, 3.5}));
}

// Absorbed: q_latent . c + q_rope . r = 2 * 3 + 4 * 5 = 26, times 1/2 is the score of key 1; key 0 has 2 * 1 + 4 * 2 =
// 10, half 5. p1 / p0 = exp(8).
TEST(AttentionProbs, AbsorbedForm_ReadsTheCacheAlone) {
  auto op = attention_op(model::OpKind::kAttentionProbs, {{1, 1}});
  op.rules = exact_rules();
  const auto p = numbers(op.run({f64({1, 1, 1}, {2}), f64({1, 1, 2}, {4, 0}), f64({2, 3}, {1, 2, 9, 3, 5, 9})}));
  EXPECT_NEAR(p[0], 1 / (1 + std::exp(8.0)), 1e-15);
  EXPECT_NEAR(p[1] / p[0], std::exp(8.0), 1e-10);
}

TEST(AttentionProbs, ExactMode_IsFp64) {
  auto op = attention_op(model::OpKind::kAttentionProbs, {{1, 1}});
  op.rules = exact_rules();
  const double ln3 = 1.0986122886681098;
  const auto probs = op.run({f64({1, 4}, {ln3, 0, 0, 0}),
                             f64({1, 1, 2}, {ln3, 0}),
                             f64({2, 3}, {0, 0, 0, 1, 0, 0}),
                             f64({2, 3}, {0, 0, 0, 0, 1, 0})});
  EXPECT_NEAR(numbers(probs)[0], 0.25, 1e-15);
  EXPECT_NEAR(numbers(probs)[1], 0.75, 1e-15);
}

}  // namespace
}  // namespace reference
