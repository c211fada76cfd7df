#include "simulator/walk.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "model/check.hpp"
#include "tests/simulator/small_config.hpp"

namespace simulator {
namespace {

using model::ParallelLayout;
using model::ParallelPlan;
using model::Shape;

const ParallelPlan& v3_plan(const ParallelLayout& layout) {
  static std::vector<std::pair<ParallelLayout, ParallelPlan>> plans;
  plans.reserve(16);  // references stay valid
  for (const auto& [known, plan] : plans) {
    if (known.tp == layout.tp && known.ep == layout.ep && known.dp == layout.dp && known.pp == layout.pp &&
        known.sequence_parallel == layout.sequence_parallel) {
      return plan;
    }
  }
  plans.emplace_back(layout, model::parallel_plan(model::built_in_config("deepseek-v3"), layout));
  return plans.back().second;
}

const WalkStep& find(const Walk& walk, const std::string& id) {
  const auto found = std::ranges::find(walk.steps, id, &WalkStep::id);
  if (found == walk.steps.end()) {
    throw std::runtime_error("no step " + id);
  }
  return *found;
}

int64_t count(const Walk& walk, Collective collective) {
  return std::ranges::count(walk.steps, collective, &WalkStep::collective);
}

constexpr StepShape kDecode{.num_cached = 100};

TEST(Walk, WithoutItsCollectives_IsTheOpList) {
  const ParallelPlan plan =
      model::parallel_plan(small_config(), {.tp = 2, .ep = 8, .pp = 2, .dp = 4, .sequence_parallel = true});
  const Walk steps = walk(plan, {.num_sequences = 3, .num_cached = 10, .with_mtp = true});
  const auto ops = model::op_list(small_config(),
                                  {.sequences = std::vector<model::SequenceStep>(12, {.num_cached = 10, .num_new = 1}),
                                   .attention_form = model::AttentionForm::kAbsorbed,
                                   .num_mtp_layers = 1});
  size_t i = 0;
  for (const WalkStep& step : steps.steps) {
    if (step.collective != Collective::kNone) {
      continue;
    }
    ASSERT_LT(i, ops.size());
    EXPECT_EQ(step.id, ops[i].id);
    EXPECT_EQ(step.global_flops, ops[i].flops);
    ++i;
  }
  EXPECT_EQ(i, ops.size());
}

// What the walk says a rank holds is what parallel_plan gives rank 0 of each stage; the router bias is used by two ops.
TEST(Walk, WeightsOfARank_AreThoseOfThePlan) {
  for (const ParallelLayout& layout : {ParallelLayout{},
                                       ParallelLayout{.tp = 8},
                                       ParallelLayout{.tp = 8, .ep = 8},
                                       ParallelLayout{.tp = 4, .ep = 2},
                                       ParallelLayout{.ep = 16, .dp = 16},
                                       ParallelLayout{.ep = 3, .dp = 3},
                                       ParallelLayout{.tp = 2, .ep = 8, .pp = 3, .dp = 4},
                                       ParallelLayout{.tp = 2, .ep = 4, .pp = 2, .dp = 2, .sequence_parallel = true}}) {
    const ParallelPlan plan = model::parallel_plan(small_config(), layout);
    const Walk steps = walk(plan, {.with_mtp = true});
    for (int64_t stage = 0; stage < layout.pp; ++stage) {
      int64_t walked = 0;
      for (const WalkStep& step : steps.steps) {
        const bool second_use = step.kind == "router_experts";
        walked += step.stage == stage && !second_use ? step.rank_weight_bytes : 0;
      }
      int64_t planned = 0;
      for (const model::TensorSlice& slice : plan.slices(stage * layout.stage_len())) {
        const auto& tensor = plan.tensors[static_cast<size_t>(slice.tensor_idx)];
        const int64_t cut = tensor.shape[static_cast<size_t>(slice.dimension)];
        planned += model::num_elements(tensor.shape) / cut * (slice.range.end - slice.range.begin) *
                   model::dtype_bytes(tensor.dtype);
      }
      EXPECT_EQ(walked, planned) << fmt::format(
          "tp{} ep{} dp{} pp{} stage {}", layout.tp, layout.ep, layout.dp, layout.pp, stage);
    }
  }
}

// Experts' work over all ranks of a stage is the whole work, whatever the layout.
TEST(Walk, ExpertFlopsOfAllRanks_AddUp) {
  for (const ParallelLayout& layout : {ParallelLayout{.tp = 8},
                                       ParallelLayout{.tp = 8, .ep = 8},
                                       ParallelLayout{.tp = 4, .ep = 2},
                                       ParallelLayout{.ep = 16, .dp = 16},
                                       ParallelLayout{.ep = 3, .dp = 3},
                                       ParallelLayout{.tp = 2, .ep = 8, .dp = 4}}) {
    const Walk steps = walk(model::parallel_plan(small_config(), layout), {.num_sequences = 5});
    for (const char* id : {"layer.1.moe.expert.*.gate", "layer.1.moe.expert.*"}) {
      const WalkStep& step = find(steps, id);
      EXPECT_NEAR(step.rank_flops * static_cast<double>(layout.num_ranks()), static_cast<double>(step.global_flops), 1)
          << layout.tp << " " << layout.ep;
    }
  }
}

// 128 heads and 129280 rows over 8 ranks; two all-reduces a layer and one behind the table; 25,088 bytes of ring for a token.
TEST(Walk, DeepSeekV3AtTp8_HasThePublishedShapes) {
  const Walk steps = walk(v3_plan({.tp = 8}), kDecode);
  EXPECT_EQ(find(steps, "layer.5.attn.q_a").rank_shape, (Shape{1, 1536}));
  EXPECT_EQ(find(steps, "layer.5.attn.q_b").rank_shape, (Shape{1, 16 * 192}));
  EXPECT_EQ(find(steps, "layer.5.attn.q_latent").rank_shape, (Shape{1, 16, 512}));
  EXPECT_EQ(find(steps, "layer.5.attn.o_proj").rank_shape, (Shape{1, 7168}));
  EXPECT_EQ(find(steps, "layer.5.moe.expert.*.gate").rank_shape, (Shape{8, 256}));
  EXPECT_EQ(find(steps, "layer.5.moe.expert.*.gate").rank_parts, 256);
  EXPECT_EQ(find(steps, "layer.5.moe.shared.gate").rank_shape, (Shape{1, 256}));
  EXPECT_EQ(find(steps, "layer.0.mlp.gate").rank_shape, (Shape{1, 2304}));
  EXPECT_EQ(find(steps, "logits").rank_shape, (Shape{1, 16160}));
  EXPECT_EQ(count(steps, Collective::kAllReduce), 2 * 61 + 1);
  EXPECT_EQ(count(steps, Collective::kAllGather), 1);
  EXPECT_EQ(count(steps, Collective::kAllToAll), 0);
  EXPECT_EQ(find(steps, "layer.5.attn.o_proj.all_reduce").rank_wire_bytes, 25'088);
}

// Shared-expert work is divided by TP like everything that TP cuts.
TEST(Walk, SharedExpertWork_IsDividedByTp) {
  const double whole = find(walk(v3_plan({}), kDecode), "layer.5.moe.shared.gate").rank_flops;
  EXPECT_EQ(whole, 2.0 * 7168 * 2048);
  EXPECT_EQ(find(walk(v3_plan({.tp = 8}), kDecode), "layer.5.moe.shared.gate").rank_flops, whole / 8);
}

// The KV of a token is 576 values in every layer, not cut by TP.
TEST(Walk, LatentCache_IsWholeOnEveryTpRank) {
  for (const ParallelLayout& layout : {ParallelLayout{}, ParallelLayout{.tp = 8}}) {
    const Walk steps = walk(v3_plan(layout), kDecode);
    int64_t written = 0;
    for (const WalkStep& step : steps.steps) {
      written += step.kind == "cache_latent" ? step.rank_kv_bytes : 0;
    }
    EXPECT_EQ(written, 70'272);
    EXPECT_EQ(find(steps, "layer.5.attn.probs").rank_kv_bytes, 101 * 576 * 2);
  }
}

// Two all-to-alls in each of 58 layers; 16 tokens x 8 copies of 7168 + 224 bytes, of which 31 / 32 leave the rank.
TEST(Walk, DeepSeekV3AtEp32_DispatchesAndCombines) {
  const Walk steps = walk(v3_plan({.ep = 32, .dp = 32}), {.num_sequences = 16, .num_cached = 100});
  EXPECT_EQ(count(steps, Collective::kAllToAll), 116);
  EXPECT_EQ(count(steps, Collective::kAllReduce), 0);
  const WalkStep& dispatch = find(steps, "layer.3.moe.dispatch");
  EXPECT_EQ(dispatch.payload_bytes, 16 * 8 * 7392);
  EXPECT_EQ(dispatch.rank_wire_bytes, 16 * 8 * 7392 * 31.0 / 32);
  EXPECT_EQ(dispatch.group_len, 32);
  EXPECT_EQ(find(steps, "layer.3.moe.combine").payload_bytes, 16 * 8 * 14336);
  const WalkStep& gate = find(steps, "layer.3.moe.expert.*.gate");
  EXPECT_EQ(gate.rank_parts, 8);
  EXPECT_EQ(gate.global_shape, (Shape{32 * 16 * 8, 2048}));
  EXPECT_EQ(gate.rank_shape, (Shape{16 * 8, 2048}));
  EXPECT_NEAR(
      gate.rank_read_bytes / static_cast<double>(gate.rank_weight_bytes), 1 - std::pow(1 - 8.0 / 256, 512), 1e-12);
}

TEST(Walk, SequenceParallel_SplitsTheTokensOfMoeLayersOnly) {
  const Walk steps =
      walk(v3_plan({.tp = 4, .ep = 32, .dp = 8, .sequence_parallel = true}), {.num_sequences = 32, .num_cached = 100});
  EXPECT_EQ(find(steps, "layer.3.ffn_norm").rank_shape, (Shape{8, 7168}));
  EXPECT_EQ(find(steps, "layer.3.moe.topk_ids").rank_shape, (Shape{8, 8}));
  EXPECT_EQ(find(steps, "layer.3.output").rank_shape, (Shape{8, 7168}));
  EXPECT_EQ(find(steps, "layer.3.attn.q_b").rank_shape, (Shape{32, 6144}));
  EXPECT_EQ(find(steps, "layer.0.ffn_norm").rank_shape, (Shape{32, 7168}));
  EXPECT_EQ(find(steps, "layer.3.moe.dispatch").rank_shape, (Shape{64, 7168}));
  // One pass around the ring: 3 x a quarter of 32 x 14,336 bytes.
  EXPECT_EQ(find(steps, "layer.3.attn.o_proj.reduce_scatter").rank_wire_bytes, 3 * 8 * 14336);
  EXPECT_EQ(find(steps, "layer.3.output.all_gather").rank_wire_bytes, 3 * 8 * 14336);
  EXPECT_EQ(find(steps, "layer.0.attn.o_proj.all_reduce").rank_wire_bytes, 2 * 3 * 8 * 14336);
}

TEST(Walk, Stages_PassTheHiddenStateOn) {
  const Walk steps = walk(v3_plan({.tp = 8, .pp = 2}), kDecode);
  EXPECT_EQ(count(steps, Collective::kSend), 1);
  const WalkStep& send = find(steps, "layer.30.output.send");
  EXPECT_EQ(send.rank_wire_bytes, 14336);
  EXPECT_EQ(send.group_stride, 8);
  EXPECT_EQ(find(steps, "layer.30.output").stage, 0);
  EXPECT_EQ(find(steps, "layer.31.attn_norm").stage, 1);
  EXPECT_EQ(find(steps, "embed").stage, 0);
  EXPECT_EQ(find(steps, "logits").stage, 1);
}

TEST(Walk, Prefill_ExpandsTheCache) {
  const Walk steps = walk(v3_plan({.tp = 8}), {.phase = Phase::kPrefill, .num_cached = 64, .num_new = 192});
  const WalkStep& kv_b = find(steps, "layer.3.attn.kv_b");
  EXPECT_EQ(kv_b.global_shape, (Shape{256, 32768}));
  EXPECT_EQ(kv_b.rank_shape, (Shape{256, 4096}));
  EXPECT_EQ(find(steps, "layer.3.attn.context").rank_shape, (Shape{192, 2048}));
  EXPECT_THROW(find(steps, "layer.3.attn.q_latent"), std::runtime_error);
}

TEST(Walk, StepThatCannotBe_IsRefused) {
  const ParallelPlan plan = model::parallel_plan(small_config(), {});
  EXPECT_THROW(walk(plan, {.num_sequences = 0}), model::InputError);
  EXPECT_THROW(walk(plan, {.num_sequences = -1}), model::InputError);
  EXPECT_THROW(walk(plan, {.num_new = 0}), model::InputError);
  EXPECT_THROW(walk(plan, {.num_cached = -1}), model::InputError);
  EXPECT_THROW(walk(plan, {.num_cached = 4096}), model::InputError);
  EXPECT_THROW(walk(plan, {.num_sequences = 1 << 20, .num_new = 32}), model::InputError);
  model::ModelConfig without_mtp = small_config();
  without_mtp.num_nextn_predict_layers = 0;
  EXPECT_THROW(walk(model::parallel_plan(without_mtp, {}), {.with_mtp = true}), model::InputError);
}

}  // namespace
}  // namespace simulator
