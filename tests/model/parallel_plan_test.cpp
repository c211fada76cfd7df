#include "model/parallel_plan.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "tests/model/hostile.hpp"
#include "tools/synthetic/fixtures.hpp"

namespace model {
namespace {

// The fixture whose 128-blocks stay whole under TP 2..8 and EP 2..16.
ModelConfig par_config() {
  return tools::synthetic::find_fixture("par")->config;
}

int64_t index_of(const ParallelPlan& plan, const std::string& name) {
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].name == name) {
      return static_cast<int64_t>(i);
    }
  }
  ADD_FAILURE() << "no tensor " << name;
  return 0;
}

using SliceKey = std::tuple<int64_t, int64_t, int64_t, int64_t>;

// Each tensor is covered exactly once by the slices of their owners, and the ranks that share a slice are its declared holders.
void expect_tiles(const ModelConfig& config, const ParallelLayout& layout) {
  SCOPED_TRACE(fmt::format("tp {} ep {} pp {} dp {}", layout.tp, layout.ep, layout.pp, layout.dp));
  const ParallelPlan plan = parallel_plan(config, layout);
  std::map<SliceKey, std::vector<int64_t>> ranks_of;
  for (int64_t rank = 0; rank < layout.num_ranks(); ++rank) {
    for (const TensorSlice& slice : plan.slices(rank)) {
      ranks_of[{slice.tensor_idx, slice.dimension, slice.range.begin, slice.range.end}].push_back(rank);
    }
  }
  std::vector<int64_t> covered_until(plan.tensors.size(), 0);
  std::vector<int64_t> dimension_of(plan.tensors.size(), -1);
  size_t num_bad = 0;
  int64_t num_slices = 0;
  for (const auto& [key, ranks] : ranks_of) {  // ascending begin within a tensor
    const auto& [tensor_idx, dimension, begin, end] = key;
    const auto i = static_cast<size_t>(tensor_idx);
    num_bad += begin == covered_until[i] && begin < end && (begin == 0 || dimension == dimension_of[i]) ? 0 : 1;
    dimension_of[i] = dimension;
    covered_until[i] = end;
    // Asking for the holders walks over all ranks; a sample of the slices is enough where there are many.
    if (num_slices++ % (1 + layout.num_ranks() * static_cast<int64_t>(plan.tensors.size()) / 20000) == 0) {
      EXPECT_EQ(plan.holders(tensor_idx, ranks.back()), ranks) << plan.tensors[i].name;
    }
  }
  EXPECT_EQ(num_bad, 0u);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    ASSERT_GE(dimension_of[i], 0) << plan.tensors[i].name << " is nowhere";
    ASSERT_EQ(covered_until[i], plan.tensors[i].shape[static_cast<size_t>(dimension_of[i])]) << plan.tensors[i].name;
  }
}

TEST(ParallelPlan, SlicesTileEveryTensorOfTheSmallModel) {
  for (const int64_t tp : {1, 2, 4, 8}) {
    for (const int64_t dp : {1, 2, 3}) {
      for (const int64_t pp : {1, 2, 3}) {
        for (int64_t ep = 1; ep <= std::min<int64_t>(tp * dp, 16); ++ep) {
          if (ep < tp ? tp % ep == 0 : ep % tp == 0 && tp * dp % ep == 0) {
            expect_tiles(par_config(), {.tp = tp, .ep = ep, .pp = pp, .dp = dp});
          }
        }
      }
    }
  }
}

TEST(ParallelPlan, SlicesTileBf16TiedAndOneProjectionModels) {
  ModelConfig config = par_config();
  config.quantization.reset();
  config.q_lora_rank.reset();
  config.tie_word_embeddings = true;
  expect_tiles(config, {.tp = 4, .ep = 8, .pp = 3, .dp = 4});
  config.n_routed_experts = 5;  // uneven over EP
  config.n_group = 1;
  config.topk_group = 1;
  expect_tiles(config, {.tp = 1, .ep = 4, .pp = 1, .dp = 4});
}

TEST(ParallelPlan, SlicesTileTheFullModel) {
  const ModelConfig config = built_in_config("deepseek-v3");
  expect_tiles(config, {.tp = 16, .ep = 16, .pp = 1, .dp = 1});
  expect_tiles(config, {.tp = 8, .ep = 1, .pp = 2, .dp = 1});
  expect_tiles(config, {.tp = 4, .ep = 32, .pp = 1, .dp = 8});
}

// The bytes of one rank of the plain expert-parallel layout: attention and FFN whole, 256 / 32 experts of each MoE layer.
TEST(ParallelPlan, ExpertsOfTheFullModel_AreEightOnEachOf32Ranks) {
  const ParallelPlan plan = parallel_plan(built_in_config("deepseek-v3"), {.tp = 4, .ep = 32, .pp = 1, .dp = 8});
  std::map<int64_t, int64_t> num_experts;
  for (const TensorSlice& slice : plan.slices(31)) {
    const CatalogTensor& tensor = plan.tensors[static_cast<size_t>(slice.tensor_idx)];
    if (tensor.expert >= 0 && tensor.name.ends_with("up_proj.weight")) {
      ++num_experts[tensor.layer];
      EXPECT_GE(tensor.expert, 248);
    }
  }
  EXPECT_EQ(num_experts.size(), 59u);  // layers 3..61
  for (const auto& [layer, count] : num_experts) {
    EXPECT_EQ(count, 8) << layer;
  }
}

struct ExpectedSlice {
  const char* name;
  TensorSplit split;
};

// The table of convert.py: outputs of q_b, kv_b, gate and up, rows of embedding and head; inputs of o and down; nothing else.
TEST(ParallelPlan, TensorsAreCutAlongThePublishedDimensions) {
  const ParallelPlan plan = parallel_plan(par_config(), {.tp = 4, .ep = 4});
  const ExpectedSlice rows[] = {
      {"model.embed_tokens.weight", {0, 4}},
      {"lm_head.weight", {0, 4}},
      {"model.layers.3.embed_tokens.weight", {0, 4}},
      {"model.layers.3.shared_head.head.weight", {0, 4}},
      {"model.layers.0.self_attn.q_b_proj.weight", {0, 4}},
      {"model.layers.0.self_attn.q_b_proj.weight_scale_inv", {0, 4}},
      {"model.layers.0.self_attn.kv_b_proj.weight", {0, 4}},
      {"model.layers.0.self_attn.o_proj.weight", {1, 4}},
      {"model.layers.0.self_attn.o_proj.weight_scale_inv", {1, 4}},
      {"model.layers.0.mlp.gate_proj.weight", {0, 4}},
      {"model.layers.0.mlp.up_proj.weight_scale_inv", {0, 4}},
      {"model.layers.0.mlp.down_proj.weight", {1, 4}},
      {"model.layers.1.mlp.shared_experts.down_proj.weight", {1, 4}},
      {"model.layers.1.mlp.experts.7.down_proj.weight", {0, 1}},
      {"model.layers.0.self_attn.q_a_proj.weight", {0, 1}},
      {"model.layers.0.self_attn.kv_a_proj_with_mqa.weight", {0, 1}},
      {"model.layers.0.self_attn.q_a_layernorm.weight", {0, 1}},
      {"model.layers.1.mlp.gate.weight", {0, 1}},
      {"model.layers.1.mlp.gate.e_score_correction_bias", {0, 1}},
      {"model.layers.3.eh_proj.weight", {0, 1}},
      {"model.norm.weight", {0, 1}},
  };
  for (const ExpectedSlice& row : rows) {
    EXPECT_EQ(plan.splits[static_cast<size_t>(index_of(plan, row.name))], row.split) << row.name;
  }
}

TEST(ParallelPlan, SliceOfARank_IsItsShareOfWeightAndScale) {
  const ParallelPlan plan = parallel_plan(par_config(), {.tp = 4, .ep = 4});
  const int64_t down = index_of(plan, "model.layers.0.mlp.down_proj.weight");  // [512, 2048]
  EXPECT_EQ(plan.slice(down, 2), (TensorSlice{down, 1, {1024, 1536}}));
  const int64_t scale = index_of(plan, "model.layers.0.mlp.down_proj.weight_scale_inv");  // [4, 16]
  EXPECT_EQ(plan.slice(scale, 2), (TensorSlice{scale, 1, {8, 12}}));
  EXPECT_EQ(plan.holders(down, 2), std::vector<int64_t>{2});
  EXPECT_EQ(plan.holders(index_of(plan, "model.norm.weight"), 2), (std::vector<int64_t>{0, 1, 2, 3}));
}

// Golden rank map: two stages of two replicas of four ranks, experts over all eight ranks of a stage.
TEST(ParallelPlan, RankMap_TensorThenDataThenPipeline) {
  const ParallelPlan plan = parallel_plan(par_config(), {.tp = 4, .ep = 8, .pp = 2, .dp = 2});
  EXPECT_EQ(plan.place(0), (RankPlace{0, 0, 0, 0, 0}));
  EXPECT_EQ(plan.place(6), (RankPlace{.stage = 0, .dp_rank = 1, .tp_rank = 2, .ep_rank = 6, .expert_tp_rank = 0}));
  EXPECT_EQ(plan.place(13), (RankPlace{.stage = 1, .dp_rank = 1, .tp_rank = 1, .ep_rank = 5, .expert_tp_rank = 0}));
  EXPECT_EQ(plan.experts(5), (IndexRange{10, 12}));
}

// Fewer EP than TP ranks: consecutive ranks take different experts, and tp / ep ranks share one expert by slices.
TEST(ParallelPlan, RankMap_ExpertTensorParallel) {
  const ParallelPlan plan = parallel_plan(par_config(), {.tp = 4, .ep = 2, .pp = 1, .dp = 2});
  EXPECT_EQ(plan.place(3), (RankPlace{.stage = 0, .dp_rank = 0, .tp_rank = 3, .ep_rank = 1, .expert_tp_rank = 1}));
  EXPECT_EQ(plan.place(4), (RankPlace{.stage = 0, .dp_rank = 1, .tp_rank = 0, .ep_rank = 0, .expert_tp_rank = 0}));
  const int64_t up = index_of(plan, "model.layers.1.mlp.experts.8.up_proj.weight");  // [1024, 512]
  EXPECT_EQ(plan.slice(up, 0), std::nullopt);
  EXPECT_EQ(plan.slice(up, 1)->range, (IndexRange{0, 512}));
  EXPECT_EQ(plan.slice(up, 3)->range, (IndexRange{512, 1024}));
  EXPECT_EQ(plan.holders(up, 7), (std::vector<int64_t>{3, 7}));
}

TEST(ParallelPlan, ExpertsThatDoNotDivide_AreSpreadByTheFloorRule) {
  ModelConfig config = par_config();
  config.n_routed_experts = 7;
  const ParallelPlan plan = parallel_plan(config, {.tp = 1, .ep = 4, .pp = 1, .dp = 4});
  for (int64_t expert = 0; expert < 7; ++expert) {
    const IndexRange own = plan.experts(expert * 4 / 7);
    EXPECT_TRUE(own.begin <= expert && expert < own.end) << expert;
  }
}

TEST(ParallelPlan, Stages_AreContiguousAndTheLastHasHeadAndMtp) {
  const ParallelPlan plan = parallel_plan(built_in_config("deepseek-v3"), {.pp = 4});
  EXPECT_EQ(plan.stage_layers(0), (IndexRange{0, 16}));
  EXPECT_EQ(plan.stage_layers(1), (IndexRange{16, 31}));
  EXPECT_EQ(plan.stage_layers(2), (IndexRange{31, 46}));
  EXPECT_EQ(plan.stage_layers(3), (IndexRange{46, 62}));
  EXPECT_EQ(plan.holders(index_of(plan, "model.embed_tokens.weight"), 0), std::vector<int64_t>{0});
  EXPECT_TRUE(plan.slice(index_of(plan, "lm_head.weight"), 3));
  EXPECT_TRUE(plan.slice(index_of(plan, "model.norm.weight"), 3));
  EXPECT_TRUE(plan.slice(index_of(plan, "model.layers.61.embed_tokens.weight"), 3));
  EXPECT_FALSE(plan.slice(index_of(plan, "lm_head.weight"), 0));
}

TEST(ParallelPlan, TiedEmbeddings_AreAReplicaOnTheLastStage) {
  ModelConfig config = par_config();
  config.tie_word_embeddings = true;
  const ParallelPlan plan = parallel_plan(config, {.pp = 3});
  EXPECT_EQ(plan.holders(index_of(plan, "model.embed_tokens.weight"), 2), (std::vector<int64_t>{0, 2}));
}

struct BadLayout {
  ParallelLayout layout;
  const char* expected;
};

TEST(ParallelPlan, ImpossibleLayouts_AreRefusedByName) {
  const BadLayout rows[] = {
      {{.tp = 0}, "layout: tp 0: expected 1 to 1048576"},
      {{.ep = -1}, "layout: ep -1: expected 1 to 1048576"},
      {{.pp = 4}, "layout: pp 4 exceeds the 3 layers"},
      {{.dp = int64_t{1} << 40}, "layout: dp 1099511627776: expected 1 to 1048576"},
      {{.tp = 1024, .dp = 2048}, "layout: tp 1024 * dp 2048 * pp 1: expected at most 1048576 ranks"},
      {{.ep = 32, .dp = 32}, "layout: ep 32 exceeds the 16 routed experts"},
      {{.tp = 8, .ep = 3},
       "layout: ep 3 with tp 8 and dp 1: expected a divisor of tp, or a multiple of tp that divides tp * dp"},
      {{.tp = 2, .ep = 4},
       "layout: ep 4 with tp 2 and dp 1: expected a divisor of tp, or a multiple of tp that divides tp * dp"},
      {{.sequence_parallel = true}, "layout: sequence_parallel needs tp above 1"},
      {{.tp = 3}, "model.embed_tokens.weight: tp 3 does not divide dimension 0 (1024)"},
      {{.tp = 16, .ep = 16},
       "model.layers.0.self_attn.q_b_proj.weight: tp 16 does not divide the 8 heads of dimension 0 (2048)"},
  };
  for (const BadLayout& row : rows) {
    EXPECT_EQ(refusal_of([&] { parallel_plan(par_config(), row.layout); }), row.expected);
  }
}

// 18432 / 32 = 576 = 4.5 blocks: engines have failed at start-up, or worse, over this one.
TEST(ParallelPlan, FullModelOverTp32_CutsABlockOfTheDenseLayers) {
  EXPECT_EQ(refusal_of([] { parallel_plan(built_in_config("deepseek-v3"), {.tp = 32, .ep = 32}); }),
            "model.layers.0.mlp.gate_proj.weight: tp 32 cuts dimension 0 (18432) into 576, not a multiple of the 128 "
            "of an FP8 block");
}

TEST(ParallelPlan, CutInsideABlock_IsRefusedOnlyForFp8) {
  ModelConfig config = par_config();
  config.intermediate_size = 576;
  EXPECT_EQ(refusal_of([&] { parallel_plan(config, {.tp = 2}); }),
            "model.layers.0.mlp.gate_proj.weight: tp 2 cuts dimension 0 (576) into 288, not a multiple of the 128 of "
            "an FP8 block");
  config.quantization.reset();
  EXPECT_NO_THROW(parallel_plan(config, {.tp = 2}));
  config = par_config();
  config.moe_intermediate_size = 384;
  config.n_shared_experts = 2;  // 768 / 2 keeps blocks whole where one expert does not
  EXPECT_EQ(refusal_of([&] { parallel_plan(config, {.tp = 2, .ep = 1}); }),
            "model.layers.1.mlp.experts.0.gate_proj.weight: tp / ep 2 cuts dimension 0 (384) into 192, not a multiple "
            "of the 128 of "
            "an FP8 block");
  EXPECT_NO_THROW(parallel_plan(config, {.tp = 2, .ep = 2}));
}

TEST(ParallelPlan, DenseModel_HasNoExpertParallelism) {
  ModelConfig config = par_config();
  config.n_routed_experts = 0;
  EXPECT_EQ(refusal_of([&] { parallel_plan(config, {.ep = 2, .dp = 2}); }),
            "layout: ep 2 exceeds the 0 routed experts");
  expect_tiles(config, {.tp = 2, .ep = 1, .pp = 2, .dp = 2});
}

}  // namespace
}  // namespace model
