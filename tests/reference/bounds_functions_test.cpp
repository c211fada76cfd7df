// Other implementations of elementary functions, in plain FP32 with the library of the machine: as a device would, and
// legal.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "reference/estimate_call.hpp"
#include "reference/numerics/round.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

model::Estimate estimate(const HandMadeOp& op, const std::vector<model::TensorView>& inputs) {
  EstimateCall call{.rules = op.rules, .workload = op.workload, .weights = op.weights, .op = op.op};
  for (const auto& input : inputs) {
    call.inputs.push_back(given(input));
  }
  return estimate_op(call);
}

void expect_inside(const model::Estimate& estimate, const std::vector<float>& results) {
  ASSERT_EQ(estimate.value.size(), results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const double stored = round_to_format(estimate.dtype, results[i]);
    ASSERT_LE(round_to_format(estimate.dtype, estimate.value[i] - estimate.error[i]), stored) << i;
    ASSERT_GE(round_to_format(estimate.dtype, estimate.value[i] + estimate.error[i]), stored) << i;
  }
}

std::vector<float> random_values(size_t count, float spread, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(generator);
  }
  return values;
}

float plain_sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

TEST(FunctionBounds, PlainSigmoid_LiesInside) {
  HandMadeOp op;
  op.op.kind = model::OpKind::kRouterScores;
  const auto logits = random_values(10000, 4, 1);
  std::vector<float> scores;
  for (const float logit : logits) {
    scores.push_back(plain_sigmoid(logit));
  }
  expect_inside(estimate(op, {f32({1, 10000}, logits)}), scores);
}

// exp(-x) overflows below -88.7, so the plain form gives 0 where the sigmoid is a subnormal number.
TEST(FunctionBounds, PlainSigmoid_OfLogitsFarBelowZero_LiesInside) {
  HandMadeOp op;
  op.op.kind = model::OpKind::kRouterScores;
  std::vector<float> logits;
  std::vector<float> scores;
  for (float logit = -80; logit > -110; logit -= 0.37f) {
    logits.push_back(logit);
    scores.push_back(plain_sigmoid(logit));
  }
  EXPECT_EQ(scores.back(), 0.0f);
  const auto count = static_cast<int64_t>(logits.size());
  expect_inside(estimate(op, {f32({1, count}, logits)}), scores);
}

TEST(FunctionBounds, PlainSilu_LiesInside) {
  HandMadeOp op;
  op.op.kind = model::OpKind::kSwiglu;
  const auto gate = random_values(10000, 3, 2);
  const auto up = random_values(10000, 1, 3);
  std::vector<float> products;
  for (size_t i = 0; i < gate.size(); ++i) {
    products.push_back(gate[i] * plain_sigmoid(gate[i]) * up[i]);
  }
  expect_inside(estimate(op, {f32({1, 10000}, gate), f32({1, 10000}, up)}), products);
}

// The sum of squares in FP32, one after another, and 1 / sqrt in FP32.
TEST(FunctionBounds, PlainNorm_LiesInside) {
  HandMadeOp op;
  op.op.kind = model::OpKind::kRmsNorm;
  op.set_weight(f32({500}, random_values(500, 1, 4)));
  const auto gain = op.weights.weight("w").codes<float>();
  const auto x = random_values(20 * 500, 2, 5);
  std::vector<float> normed;
  for (size_t begin = 0; begin < x.size(); begin += 500) {
    float sum = 0;
    for (size_t i = 0; i < 500; ++i) {
      sum += x[begin + i] * x[begin + i];
    }
    const float inverse_rms = 1.0f / std::sqrt(sum / 500 + 1e-6f);
    for (size_t i = 0; i < 500; ++i) {
      normed.push_back(x[begin + i] * inverse_rms * gain[i]);
    }
  }
  expect_inside(estimate(op, {f32({20, 500}, x)}), normed);
}

// Softmax as fused attention computes it: 2^(s * log2(e) - max * log2(e)) with one fused step, and a division at the
// end.
TEST(FunctionBounds, SoftmaxToTheBaseTwo_LiesInside) {
  constexpr int64_t kKeys = 40;
  constexpr size_t kDim = 32;
  HandMadeOp op;
  op.op.kind = model::OpKind::kAttentionProbs;
  op.config().num_attention_heads = 1;
  op.config().qk_nope_head_dim = kDim - 2;
  op.config().qk_rope_head_dim = 2;
  op.config().kv_lora_rank = kDim - 2;
  op.workload = {.sequences = {{.num_cached = kKeys - 1, .num_new = 1}},
                 .attention_form = model::AttentionForm::kAbsorbed};
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(kDim)) * std::numbers::log2e);
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto q = random_values(kDim, 2, 100 + seed);
    const auto cache = random_values(kKeys * kDim, 2, 200 + seed);
    std::vector<float> dots(kKeys, 0.0f);
    for (size_t i = 0; i < cache.size(); ++i) {
      dots[i / kDim] = std::fma(q[i % kDim], cache[i], dots[i / kDim]);
    }
    const float top = *std::max_element(dots.begin(), dots.end()) * scale;
    float sum = 0;
    for (float& dot : dots) {
      dot = std::exp2(std::fma(dot, scale, -top));
      sum += dot;
    }
    for (float& dot : dots) {
      dot /= sum;
    }
    const std::vector<model::TensorView> inputs{f32({1, 1, kDim - 2}, {q.begin(), q.end() - 2}),
                                                f32({1, 1, 2}, {q.end() - 2, q.end()}),
                                                f32({kKeys, kDim}, cache)};
    expect_inside(estimate(op, inputs), dots);
  }
}

}  // namespace
}  // namespace reference
