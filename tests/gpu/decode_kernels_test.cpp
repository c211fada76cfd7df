// The kernels of decode that multiply no matrices, against the reference: embed, swiglu, router, combine.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gpu/kernels/combine.cuh"
#include "gpu/kernels/embed.cuh"
#include "gpu/kernels/router.cuh"
#include "gpu/kernels/swiglu.cuh"
#include "reference/estimate_call.hpp"
#include "reference/numerics/round.hpp"
#include "reference/quantize.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/reference/hand_made.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

// All tests run on it, in every order.
class DecodeKernel : public testing::TestWithParam<emulation::Order> {
 protected:
  Device device{{.order = GetParam()}};
  Stream stream = device.create_stream();
};

float number(half16 x) {
  return model::decode_bf16(x.bits);
}

TEST_P(DecodeKernel, Embed_CopiesRows_AndMarksUnknownTokens) {
  constexpr int kHidden = 1032;
  const auto table = random_bf16(int64_t{5} * kHidden, 1, 1);
  const std::vector<int32_t> tokens{4, 0, 5, -1, 3};
  const Buffer<half16> table_buffer(device, stream, table, "table");
  const Buffer<int32_t> token_buffer(device, stream, tokens, "tokens");
  const Buffer<half16> out(device, stream, static_cast<int64_t>(tokens.size()) * kHidden, "out");
  embed(stream,
        {.tokens = token_buffer.data(),
         .table = table_buffer.data(),
         .out = out.data(),
         .num_tokens = 5,
         .vocab = 5,
         .num_table_rows = 5,
         .hidden = kHidden});
  const auto got = out.download();
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (size_t i = 0; i < kHidden; ++i) {
      if (tokens[t] >= 0 && tokens[t] < 5) {
        ASSERT_EQ(got[t * kHidden + i].bits, table[static_cast<size_t>(tokens[t]) * kHidden + i].bits);
      } else {
        ASSERT_TRUE(std::isnan(number(got[t * kHidden + i])));
      }
    }
  }
}

// A rank has rows 2 to 4 of five: another rank's token is a row of zeros, so that the sum over ranks is the row.
TEST_P(DecodeKernel, Embed_OfPartOfATable_IsZeroWhereAnotherRankHasTheRow) {
  constexpr int kHidden = 8;
  const auto table = random_bf16(int64_t{3} * kHidden, 1, 1);
  const Buffer<half16> table_buffer(device, stream, table, "table");
  const Buffer<int32_t> tokens(device, stream, std::vector<int32_t>{2, 4, 1, 5}, "tokens");
  const Buffer<half16> out(device, stream, 4 * kHidden, "out");
  embed(stream,
        {.tokens = tokens.data(),
         .table = table_buffer.data(),
         .out = out.data(),
         .num_tokens = 4,
         .vocab = 5,
         .first_id = 2,
         .num_table_rows = 3,
         .hidden = kHidden});
  const auto got = out.download();
  for (size_t i = 0; i < kHidden; ++i) {
    EXPECT_EQ(got[i].bits, table[i].bits);
    EXPECT_EQ(got[kHidden + i].bits, table[2 * kHidden + i].bits);
    EXPECT_EQ(got[2 * kHidden + i].bits, 0);
    EXPECT_TRUE(std::isnan(number(got[3 * kHidden + i])));
  }
}

// Two groups of four rows, of which 3 and 0 are valid; the others hold NaN and must stay untouched.
void check_swiglu(Device& device, Stream stream, int dim) {
  constexpr int64_t kMaxRows = 4;
  const auto num_blocks = static_cast<size_t>((dim + 127) / 128);
  auto gate_up = random_bf16(2 * kMaxRows * 2 * dim, 4, 2);
  gate_up[0] = {0xC2B4};  // -90: exp overflows
  for (size_t i = static_cast<size_t>(3 * 2 * dim); i < gate_up.size(); ++i) {
    gate_up[i] = {0x7FFF};
  }
  const Buffer<half16> input(device, stream, gate_up, "gate_up");
  const Buffer<int32_t> rows(device, stream, std::vector<int32_t>{3, 0}, "num_rows");
  const Buffer<half16> act(device, stream, 2 * kMaxRows * dim, "act");
  const Buffer<fp8_e4m3> codes(device, stream, 2 * kMaxRows * dim, "codes");
  const Buffer<float> scales(device, stream, 2 * static_cast<int64_t>(num_blocks) * kMaxRows, "scales");
  swiglu(stream,
         {.gate_up = input.data(),
          .num_rows = rows.data(),
          .act = act.data(),
          .codes = codes.data(),
          .scales = scales.data(),
          .max_rows = kMaxRows,
          .num_groups = 2,
          .dim = dim});
  device.synchronize();
  const auto got = act.download();
  const auto got_codes = codes.download();
  const auto got_scales = scales.download();
  std::vector<half16> gate;
  std::vector<half16> up;
  for (size_t r = 0; r < 3; ++r) {
    gate.insert(gate.end(),
                gate_up.begin() + static_cast<int64_t>(r) * 2 * dim,
                gate_up.begin() + static_cast<int64_t>(r) * 2 * dim + dim);
    up.insert(up.end(),
              gate_up.begin() + static_cast<int64_t>(r) * 2 * dim + dim,
              gate_up.begin() + static_cast<int64_t>(r + 1) * 2 * dim);
  }
  reference::HandMadeOp op;
  op.op.kind = model::OpKind::kSwiglu;
  const auto expected = reference::estimate_op(
      {.rules = op.rules,
       .workload = op.workload,
       .weights = op.weights,
       .op = op.op,
       .inputs = {reference::given(view_of({3, dim}, gate)), reference::given(view_of({3, dim}, up))}});
  for (size_t r = 0; r < 3; ++r) {
    std::vector<float> row;
    for (size_t i = 0; i < static_cast<size_t>(dim); ++i) {
      const size_t at = r * static_cast<size_t>(dim) + i;
      const float value = number(got[at]);
      ASSERT_GE(value, reference::round_to_bf16(static_cast<float>(expected.value[at] - expected.error[at])))
          << r << ", " << i;
      ASSERT_LE(value, reference::round_to_bf16(static_cast<float>(expected.value[at] + expected.error[at])))
          << r << ", " << i;
      row.push_back(value);
    }
    const auto quantized = reference::quantize_row({}, row);
    for (size_t i = 0; i < static_cast<size_t>(dim); ++i) {
      ASSERT_EQ(model::decode_f8_e4m3(got_codes[r * static_cast<size_t>(dim) + i].bits), quantized.codes[i]);
    }
    for (size_t b = 0; b < num_blocks; ++b) {
      ASSERT_EQ(got_scales[b * kMaxRows + r], quantized.scales[b]);
    }
  }
  for (size_t i = static_cast<size_t>(3 * dim); i < got.size(); ++i) {
    ASSERT_EQ(got[i].bits, 0xFFFF) << "a row that is not valid was written";
  }
}
TEST_P(DecodeKernel, Swiglu_AgreesOnValidRows_AndLeavesTheOthersAlone) {
  check_swiglu(device, stream, 2056);  // a ragged last block of 8
}
TEST(PublishedWidths, SwigluOfExpertsAndDenseLayers_Agrees) {
  Device device;
  check_swiglu(device, device.create_stream(), 2048);
  check_swiglu(device, device.create_stream(), 18432);
}

struct Shape {
  int num_experts;
  int num_groups;
  int kept;
  int k;
  bool bias;
  Scoring scoring = Scoring::kSigmoid;
  bool normalise = true;
};

// The scores inside their bound; from the kernel's own scores on, ids and weights are the reference's to the bit.
void check_router(Device& device, Stream stream, const Shape& s, std::vector<float> logits) {
  const auto num_tokens = static_cast<int64_t>(logits.size()) / s.num_experts;
  std::vector<float> bias;
  for (int e = 0; e < s.num_experts; ++e) {
    bias.push_back(static_cast<float>(e * 37 % 11 - 5) * 0.03f);
  }
  const Buffer<float> logit_buffer(device, stream, logits, "logits");
  const Buffer<float> bias_buffer(device, stream, bias, "bias");
  const Buffer<float> scores(device, stream, num_tokens * s.num_experts, "scores");
  const Buffer<int32_t> groups(device, stream, num_tokens * s.kept, "group_ids");
  const Buffer<int32_t> ids(device, stream, num_tokens * s.k, "topk_ids");
  const Buffer<float> weights(device, stream, num_tokens * s.k, "topk_weights");
  constexpr float kFactor = 2.5f;
  router(stream,
         {.logits = logit_buffer.data(),
          .bias = s.bias ? bias_buffer.data() : nullptr,
          .scores = scores.data(),
          .group_ids = groups.data(),
          .topk_ids = ids.data(),
          .topk_weights = weights.data(),
          .num_tokens = num_tokens,
          .num_experts = s.num_experts,
          .num_groups = s.num_groups,
          .kept_groups = s.kept,
          .k = s.k,
          .scaling_factor = kFactor,
          .normalise = s.normalise,
          .scoring = s.scoring,
          .group_score = s.bias ? GroupScore::kTopTwo : GroupScore::kLargest});
  device.synchronize();

  reference::HandMadeOp op;
  auto& config = op.config();
  config.n_routed_experts = s.num_experts;
  config.n_group = s.num_groups;
  config.topk_group = s.kept;
  config.num_experts_per_tok = s.k;
  config.norm_topk_prob = s.normalise;
  config.routed_scaling_factor = kFactor;
  config.scoring_func =
      s.scoring == Scoring::kSoftmax ? model::ScoringFunction::kSoftmax : model::ScoringFunction::kSigmoid;
  config.topk_method = s.bias ? model::TopkMethod::kNoauxTc : model::TopkMethod::kGroupLimitedGreedy;
  const auto run = [&](model::OpKind kind, std::vector<model::TensorView> inputs) {
    op.op.kind = kind;
    return op.run(std::move(inputs));
  };
  const auto got_scores = scores.download();
  op.op.kind = model::OpKind::kRouterScores;
  const auto expected =
      reference::estimate_op({.rules = op.rules,
                              .workload = op.workload,
                              .weights = op.weights,
                              .op = op.op,
                              .inputs = {reference::given(reference::f32({num_tokens, s.num_experts}, logits))}});
  for (size_t i = 0; i < got_scores.size(); ++i) {
    if (std::isnan(logits[i])) {
      ASSERT_TRUE(std::isnan(got_scores[i]));
    } else if (s.scoring == Scoring::kSigmoid) {
      ASSERT_NEAR(got_scores[i], expected.value[i], expected.error[i] + std::abs(expected.value[i]) * 0x1p-24) << i;
    }
  }
  const auto view = reference::f32({num_tokens, s.num_experts}, got_scores);
  if (s.bias) {
    op.set_weight(reference::f32({s.num_experts}, bias));
  }
  const auto expected_groups = run(model::OpKind::kRouterGroups, {view});
  const auto expected_ids = run(model::OpKind::kRouterExperts, {view, expected_groups});
  op.op.weights.clear();
  const auto expected_weights = run(model::OpKind::kRouterWeights, {view, expected_ids});
  const auto same = [](const auto& codes, const auto& got) {
    return std::equal(codes.begin(), codes.end(), got.begin(), got.end());
  };
  EXPECT_TRUE(same(expected_groups.codes<int32_t>(), groups.download()));
  EXPECT_TRUE(same(expected_ids.codes<int32_t>(), ids.download()));
  EXPECT_TRUE(same(expected_weights.codes<float>(), weights.download()));
}

std::vector<float> random_logits(int64_t count, float step) {
  std::mt19937 engine(7);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(engine);
    values.push_back(step > 0 ? std::round(value / step) * step : value);
  }
  return values;
}

TEST_P(DecodeKernel, Router_ChoosesAsTheReference) {
  check_router(device, stream, {256, 8, 4, 8, true}, random_logits(3 * 256, 0));
  check_router(device, stream, {16, 4, 2, 4, true}, random_logits(4 * 16, 0));
  check_router(device, stream, {60, 3, 1, 6, false, Scoring::kSoftmax, false}, random_logits(2 * 60, 0));
}
TEST_P(DecodeKernel, Router_TiesGoToTheLowerIndex) {
  check_router(device, stream, {256, 8, 4, 8, true}, random_logits(2 * 256, 1));
  check_router(device, stream, {64, 8, 4, 8, false}, std::vector<float>(64, 0.5f));
}
// Scores that underflow to 0 make the weights 0 / 1e-20, not 0 / 0.
TEST_P(DecodeKernel, Router_ScoresOfZero_GiveFiniteWeights) {
  check_router(device, stream, {64, 1, 1, 8, false}, std::vector<float>(64, -200.0f));
}

// A row of padding may hold NaN: its ids must still be experts, and different ones, or a later kernel reads beyond its weights.
TEST_P(DecodeKernel, Router_NanLogits_GiveDifferentExperts) {
  constexpr int kExperts = 32;
  const Buffer<float> logits(device, stream, kExperts, "logits");  // NaN as allocated
  const Buffer<float> scores(device, stream, kExperts, "scores");
  const Buffer<int32_t> ids(device, stream, 8, "topk_ids");
  const Buffer<float> weights(device, stream, 8, "topk_weights");
  router(stream,
         {.logits = logits.data(),
          .scores = scores.data(),
          .topk_ids = ids.data(),
          .topk_weights = weights.data(),
          .num_tokens = 1,
          .num_experts = kExperts,
          .num_groups = 4,
          .kept_groups = 2,
          .k = 8});
  auto got = ids.download();
  std::sort(got.begin(), got.end());
  EXPECT_TRUE(got.front() >= 0 && got.back() < kExperts);
  EXPECT_EQ(std::unique(got.begin(), got.end()), got.end());
}

// Token 0 chose experts 5 and 2, token 1 experts 0 and 5; rows lie wherever the permutation put them.
void check_combine(Device& device, Stream stream, int hidden) {
  constexpr int kExperts = 6;
  const auto rows = random_bf16(int64_t{4} * hidden, 1, 3);
  const auto shared = random_bf16(int64_t{2} * hidden, 1, 4);
  const std::vector<int32_t> ids{5, 2, 0, 5};
  const std::vector<int32_t> row_of_slot{3, 0, 2, 1};
  const std::vector<float> slot_weights{0.3f, 1.7f, 0.9f, 1.1f};
  const Buffer<half16> row_buffer(device, stream, rows, "expert_rows");
  const Buffer<half16> shared_buffer(device, stream, shared, "shared");
  const Buffer<int32_t> slots(device, stream, row_of_slot, "row_of_slot");
  const Buffer<int32_t> id_buffer(device, stream, ids, "topk_ids");
  const Buffer<float> weights(device, stream, slot_weights, "topk_weights");
  const Buffer<half16> out(device, stream, int64_t{2} * hidden, "out");
  combine(stream,
          {.expert_rows = row_buffer.data(),
           .row_of_slot = slots.data(),
           .topk_ids = id_buffer.data(),
           .topk_weights = weights.data(),
           .shared = shared_buffer.data(),
           .out = out.data(),
           .num_tokens = 2,
           .hidden = hidden,
           .k = 2});
  const auto got = out.download();

  const auto row = [&](int r) {
    return std::vector<half16>(rows.begin() + r * hidden, rows.begin() + (r + 1) * hidden);
  };
  std::vector<half16> of_five = row(3);  // token 0's row, then token 1's
  const auto second = row(1);
  of_five.insert(of_five.end(), second.begin(), second.end());
  std::vector<model::TensorView> outputs(kExperts);
  outputs[0] = view_of({1, hidden}, row(2));
  outputs[2] = view_of({1, hidden}, row(0));
  outputs[5] = view_of({2, hidden}, of_five);
  reference::HandMadeOp op;
  op.config().hidden_size = hidden;
  op.op.kind = model::OpKind::kCombine;
  const auto routed = op.run({reference::i32({2, 2}, ids), reference::f32({2, 2}, slot_weights), {}}, outputs);
  op.op.kind = model::OpKind::kMoeOutput;
  const auto expected = op.run({routed, view_of({2, hidden}, shared)});
  const auto codes = expected.codes<uint16_t>();
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].bits, codes[i]) << i;
  }
}
TEST_P(DecodeKernel, Combine_IsTheReferencesToTheBit) {
  check_combine(device, stream, 264);
}
TEST(PublishedWidths, Combine_IsTheReferencesToTheBit) {
  Device device;
  check_combine(device, device.create_stream(), 7168);
}

INSTANTIATE_TEST_SUITE_P(Orders, DecodeKernel, testing::ValuesIn(kOrders));

}  // namespace
}  // namespace gpu::DSV3_BACKEND
