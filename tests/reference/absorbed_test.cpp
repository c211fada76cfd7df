#include "reference/ops/absorbed.hpp"

#include <gtest/gtest.h>

#include "tests/reference/small_model.hpp"

namespace reference {
namespace {

// nope 2, v 1, rope 1: of each head's three rows of kv_b the first two are W_UK, the last W_UV. kv_lora 2.
HandMadeOp absorbed_op(model::OpKind kind, int64_t num_heads, std::vector<model::SequenceStep> sequences) {
  HandMadeOp op;
  op.op.kind = kind;
  op.workload.sequences = std::move(sequences);
  op.config().num_attention_heads = num_heads;
  op.config().qk_nope_head_dim = 2;
  op.config().qk_rope_head_dim = 1;
  op.config().v_head_dim = 1;
  op.config().kv_lora_rank = 2;
  return op;
}

// Head 0: 5 * (1, 2) + 6 * (3, 4) = (23, 34). Head 1: 1 * (7, 8) + 2 * (9, 10) = (25, 28). Rows of W_UV and rotated
// columns are NaN.
TEST(QueryLatent, EveryHead_GoesThroughItsRowsOfWuk) {
  auto op = absorbed_op(model::OpKind::kQueryLatent, 2, {{0, 1}});
  op.set_weight(bf16({6, 2}, {1, 2, 3, 4, kNaN, kNaN, 7, 8, 9, 10, kNaN, kNaN}));
  const auto latent = op.run({bf16({1, 6}, {5, 6, kNaN, 1, 2, kNaN})});
  EXPECT_EQ(latent.shape, (model::Shape{1, 2, 2}));
  EXPECT_EQ(numbers(latent), (Numbers{23, 34, 25, 28}));
}

// Codes 1.125 and 1 times 129/128 are 145.125/128, in BF16 145/128, and 129/128: difference 16/128. Exact: 0.125 *
// 129/128.
TEST(QueryLatent, Fp8Weights_AreDequantisedToBf16_WhateverTheGemm) {
  auto op = absorbed_op(model::OpKind::kQueryLatent, 1, {{0, 1}});
  op.rules.gemm = Gemm::kFp8;
  op.set_weight(f8({3, 2}, {1.125f, 0, 1, 0, 0, 0}), f32({1, 1}, {129.0f / 128}));
  EXPECT_EQ(numbers(op.run({bf16({1, 3}, {1, -1, 0})})), (Numbers{0.125, 0}));
  op.rules = exact_rules();
  EXPECT_EQ(numbers(op.run({f64({1, 3}, {1, -1, 0})})), (Numbers{0.1259765625, 0}));
}

// 1/4 * (1, 10) + 3/4 * (3, 20) = (2.5, 17.5); the key in column 2 is not read.
TEST(OutputLatent, RowsOfTheCache_AreWeightedByTheirProbabilities) {
  const auto op = absorbed_op(model::OpKind::kOutputLatent, 1, {{1, 1}});
  const auto latent = op.run({f32({1, 1, 2}, {0.25f, 0.75f}), bf16({2, 3}, {1, 10, kNaN, 3, 20, kNaN})});
  EXPECT_EQ(numbers(latent), (Numbers{2.5, 17.5}));
}

// BF16(0.3) = 77/256, BF16(0.7) = 179/256: 7 * 77/256 - 3 * 179/256 = 2/256. Unrounded: 0 up to FP32 rounding.
TEST(OutputLatent, Probabilities_AreRoundedByTheRule) {
  auto op = absorbed_op(model::OpKind::kOutputLatent, 1, {{1, 1}});
  const std::vector<model::TensorView> inputs{f32({1, 1, 2}, {0.3f, 0.7f}), bf16({2, 3}, {7, 0, 0, -3, 0, 0})};
  EXPECT_EQ(numbers(op.run(inputs)), (Numbers{2.0 / 256, 0}));
  op.rules.probs = ProbsRule::kFp32;
  EXPECT_NEAR(numbers(op.run(inputs))[0], 0, 1e-6);
}

// The second sequence has rows 2 and 3; its future, and all of the first sequence, are NaN.
TEST(OutputLatent, RaggedSequences_ReadTheirOwnRows) {
  const auto op = absorbed_op(model::OpKind::kOutputLatent, 1, {{2, 0}, {0, 2}});
  const auto latent =
      op.run({f32({2, 1, 2}, {1, 0, 0, 1}), bf16({4, 3}, {kNaN, kNaN, 0, kNaN, kNaN, 0, 1, 2, 0, kNaN, 4, 0})});
  EXPECT_EQ(numbers(latent)[0], 1);
  EXPECT_EQ(numbers(latent)[1], 2);
}

// Head 0: (2, 3) . (5, 7) = 31. Head 1: (1, -1) . (4, 1) = 3. Rows of W_UK are NaN.
TEST(ContextFromLatent, EveryHead_GoesThroughItsRowsOfWuv) {
  auto op = absorbed_op(model::OpKind::kAttentionContext, 2, {{0, 1}});
  op.set_weight(bf16({6, 2}, {kNaN, kNaN, kNaN, kNaN, 2, 3, kNaN, kNaN, kNaN, kNaN, 1, -1}));
  EXPECT_EQ(numbers(op.run({bf16({1, 2, 2}, {5, 7, 4, 1})})), (Numbers{31, 3}));
}

// Keeps every value that has the same meaning in both forms.
class Values : public model::Probe {
 public:
  [[nodiscard]] bool wants(const model::Op&) const override { return true; }
  void see(const model::Op& op, const model::TensorView& value) override {
    if (!op.id.ends_with(".kv_b") && !op.id.ends_with("_latent")) {
      values[op.id].push_back(value);
    }
  }
  std::map<std::string, std::vector<model::TensorView>> values;
};

// (q W_UK) c = q (W_UK c), and likewise for W_UV: without rounding the two forms are the same numbers.
TEST(AbsorbedForm, ExactMode_AgreesWithTheExpandedForm) {
  const auto weights = random_weights(small_config(), 3);
  std::map<model::AttentionForm, Values> runs;
  for (const auto form : {model::AttentionForm::kExpanded, model::AttentionForm::kAbsorbed}) {
    LatentCache cache;
    const Transformer transformer(weights, exact_rules(), 1);
    for (const StepInput& step : two_steps(form, weights.config().vocab_size)) {
      transformer.step(step, cache, runs[form]);
    }
  }
  const auto& expanded = runs[model::AttentionForm::kExpanded].values;
  const auto& absorbed = runs[model::AttentionForm::kAbsorbed].values;
  ASSERT_EQ(expanded.size(), absorbed.size());
  for (const auto& [id, steps] : expanded) {
    for (size_t s = 0; s < steps.size(); ++s) {
      const auto left = numbers(steps[s]);
      const auto right = numbers(absorbed.at(id)[s]);
      double largest = 0;
      for (const double value : left) {
        largest = std::max(largest, std::abs(value));
      }
      for (size_t i = 0; i < left.size(); ++i) {
        ASSERT_NEAR(left[i], right[i], 1e-12 * largest) << id << " [" << i << "]";
      }
    }
  }
}

}  // namespace
}  // namespace reference
