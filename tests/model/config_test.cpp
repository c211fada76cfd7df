#include "model/config.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/model/config_texts.hpp"
#include "tests/model/hostile.hpp"
#include "tests/temp_dir.hpp"

namespace model {
namespace {

using nlohmann::json;

// The small config with a JSON merge patch: null in `patch` removes a key.
ModelConfig patched(const std::string& patch) {
  json document = json::parse(kSmall);
  document.merge_patch(json::parse(patch));
  return parse_config(document.dump(), "test");
}

// The small config with one top-level key set, also to null.
ModelConfig with(const std::string& key, const json& value) {
  json document = json::parse(kSmall);
  document[key] = value;
  return parse_config(document.dump(), "test");
}

TEST(Config, PublishedV3_IsTheBuiltIn) {
  EXPECT_EQ(parse_config(kDeepseekV3, "test"), built_in_config("deepseek-v3"));
}

TEST(Config, PublishedKimiK2_IsTheBuiltIn) {
  EXPECT_EQ(parse_config(kKimiK2, "test"), built_in_config("kimi-k2"));
}

TEST(Config, BuiltIn_UnknownNameListsTheKnownOnes) {
  EXPECT_EQ(refusal_of([] { built_in_config("gpt"); }), "no built-in config \"gpt\", expected deepseek-v3 or kimi-k2");
}

TEST(Config, SmallConfig_EveryFieldIsRead) {
  const ModelConfig config = parse_config(kSmall, "test");
  EXPECT_EQ(config.vocab_size, 512);
  EXPECT_EQ(config.hidden_size, 256);
  EXPECT_EQ(config.intermediate_size, 384);
  EXPECT_EQ(config.moe_intermediate_size, 128);
  EXPECT_EQ(config.num_hidden_layers, 4);
  EXPECT_EQ(config.num_nextn_predict_layers, 1);
  EXPECT_EQ(config.first_k_dense_replace, 1);
  EXPECT_EQ(config.num_attention_heads, 4);
  EXPECT_EQ(config.q_lora_rank, 96);
  EXPECT_EQ(config.kv_lora_rank, 64);
  EXPECT_EQ(config.qk_head_dim(), 48);
  EXPECT_EQ(config.latent_dim(), 80);
  EXPECT_EQ(config.v_head_dim, 48);
  EXPECT_EQ(config.n_routed_experts, 16);
  EXPECT_EQ(config.experts_per_group(), 4);
  EXPECT_EQ(config.shared_intermediate_size(), 128);
  EXPECT_EQ(config.num_experts_per_tok, 4);
  EXPECT_EQ(config.topk_group, 2);
  EXPECT_EQ(config.routed_scaling_factor, 1.75);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.max_position_embeddings, 384);
  EXPECT_EQ(config.rope_theta, 2000);
  ASSERT_TRUE(config.yarn);
  EXPECT_EQ(config.yarn->factor, 6);
  EXPECT_EQ(config.yarn->original_max_position_embeddings, 64);
  EXPECT_EQ(config.yarn->beta_fast, 5);
  EXPECT_EQ(config.yarn->beta_slow, 2);
  EXPECT_EQ(config.yarn->mscale, 0.5);
  EXPECT_EQ(config.yarn->mscale_all_dim, 1.2);
  EXPECT_EQ(config.bos_token_id, 0);
  EXPECT_EQ(config.eos_token_ids, std::vector<int64_t>{1});
  EXPECT_TRUE(config.unknown_keys.empty());
}

TEST(Config, V2Lite_SoftmaxGreedyOneQueryProjectionBf16) {
  const ModelConfig config = parse_config(kDeepseekV2Lite, "test");
  EXPECT_EQ(config.q_lora_rank, std::nullopt);
  EXPECT_EQ(config.scoring_func, ScoringFunction::kSoftmax);
  EXPECT_EQ(config.topk_method, TopkMethod::kGreedy);
  EXPECT_FALSE(config.has_router_bias());
  EXPECT_FALSE(config.norm_topk_prob);
  EXPECT_EQ(config.routed_scaling_factor, 1.0);
  EXPECT_EQ(config.shared_intermediate_size(), 2816);
  EXPECT_EQ(config.quantization, std::nullopt);
  EXPECT_EQ(config.num_nextn_predict_layers, 0);
  EXPECT_TRUE(config.unknown_keys.empty());
}

TEST(Config, V2_AbsentRouterKeysMeanSoftmaxGreedyUnnormalised) {
  const ModelConfig config = patched(
      R"({"model_type": "deepseek_v2", "scoring_func": null, "topk_method": null, "norm_topk_prob": null,
          "routed_scaling_factor": null})");
  EXPECT_EQ(config.scoring_func, ScoringFunction::kSoftmax);
  EXPECT_EQ(config.topk_method, TopkMethod::kGreedy);
  EXPECT_FALSE(config.norm_topk_prob);
  EXPECT_EQ(config.routed_scaling_factor, 1.0);
}

TEST(Config, V3_AbsentRouterKeysMeanSigmoidNoauxNormalised) {
  const ModelConfig config =
      patched(R"({"scoring_func": null, "topk_method": null, "norm_topk_prob": null, "routed_scaling_factor": null})");
  EXPECT_EQ(config.scoring_func, ScoringFunction::kSigmoid);
  EXPECT_EQ(config.topk_method, TopkMethod::kNoauxTc);
  EXPECT_TRUE(config.norm_topk_prob);
  EXPECT_EQ(config.routed_scaling_factor, 2.5);
}

TEST(Config, V32_IndexerKeysAreReportedAndScalesArePowersOfTwo) {
  const ModelConfig config = parse_config(kDeepseekV32, "test");
  EXPECT_EQ(config.unknown_keys, (std::vector<std::string>{"index_head_dim", "index_n_heads", "index_topk"}));
  ASSERT_TRUE(config.quantization);
  EXPECT_EQ(config.quantization->scale_fmt, ScaleFormat::kUe8m0);
}

TEST(Config, ScaleFmtAtTheTop_CountsAsInTheBlock) {
  EXPECT_EQ(with("scale_fmt", "ue8m0").quantization->scale_fmt, ScaleFormat::kUe8m0);
  EXPECT_EQ(with("scale_fmt", nullptr).quantization->scale_fmt, ScaleFormat::kFp32);
}

TEST(Config, UnknownKeysOfBlocks_AreReportedWithTheirBlock) {
  const ModelConfig config = patched(
      R"({"rope_scaling": {"long_factor": 2}, "quantization_config": {"modules_to_not_convert": ["x"]}, "mlp_bias": true})");
  EXPECT_EQ(
      config.unknown_keys,
      (std::vector<std::string>{"mlp_bias", "quantization_config.modules_to_not_convert", "rope_scaling.long_factor"}));
}

TEST(Config, QLoraRank_NullZeroAndAbsentMeanOneProjection) {
  EXPECT_EQ(with("q_lora_rank", nullptr).q_lora_rank, std::nullopt);
  EXPECT_EQ(with("q_lora_rank", 0).q_lora_rank, std::nullopt);
  EXPECT_EQ(patched(R"({"q_lora_rank": null})").q_lora_rank, std::nullopt);
}

TEST(Config, Groups_NullAndAbsentMeanOneGroup) {
  json document = json::parse(kSmall);
  document["n_group"] = nullptr;
  document["topk_group"] = nullptr;
  for (const ModelConfig& config :
       {parse_config(document.dump(), "test"), patched(R"({"n_group": null, "topk_group": null})")}) {
    EXPECT_EQ(config.n_group, 1);
    EXPECT_EQ(config.topk_group, 1);
    EXPECT_EQ(config.experts_per_group(), 16);
  }
}

TEST(Config, OneExpertInOneGroup_IsARouter) {
  const ModelConfig config =
      patched(R"({"n_routed_experts": 1, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 1})");
  EXPECT_EQ(config.experts_per_group(), 1);
}

TEST(Config, GreedyIgnoresGroups) {
  const ModelConfig config = patched(R"({"topk_method": "greedy", "n_group": 3, "topk_group": null})");
  EXPECT_EQ(config.n_group, 1);
  EXPECT_EQ(config.topk_group, 1);
}

TEST(Config, GroupLimitedGreedy_AllowsOneExpertAGroup) {
  const ModelConfig config = patched(R"({"topk_method": "group_limited_greedy", "n_group": 16, "topk_group": 4})");
  EXPECT_EQ(config.topk_method, TopkMethod::kGroupLimitedGreedy);
  EXPECT_EQ(config.experts_per_group(), 1);
}

TEST(Config, NoSharedExpertAndNoExperts) {
  EXPECT_EQ(with("n_shared_experts", nullptr).n_shared_experts, 0);
  const ModelConfig dense = with("n_routed_experts", nullptr);
  EXPECT_EQ(dense.n_routed_experts, 0);
  EXPECT_FALSE(dense.is_moe_layer(3));
  EXPECT_FALSE(dense.is_moe_layer(4));  // MTP
  EXPECT_TRUE(dense.unknown_keys.empty());
}

TEST(Config, EosTokenIds_OneListOrNone) {
  EXPECT_EQ(with("eos_token_id", json::array({1, 7})).eos_token_ids, (std::vector<int64_t>{1, 7}));
  EXPECT_TRUE(with("eos_token_id", nullptr).eos_token_ids.empty());
  EXPECT_EQ(with("bos_token_id", nullptr).bos_token_id, std::nullopt);
}

// Layers of 0..8, 4 + 1 MTP: a layer is MoE iff it is at least first_k_dense_replace and a multiple of moe_layer_freq.
TEST(Config, MoeLayers_ObeyFirstKAndFrequencyTogether) {
  const ModelConfig config = patched(R"({"first_k_dense_replace": 1, "moe_layer_freq": 2, "num_hidden_layers": 7})");
  const std::vector<bool> expected{false, false, true, false, true, false, true};
  for (int64_t layer = 0; layer < 7; ++layer) {
    EXPECT_EQ(config.is_moe_layer(layer), expected[static_cast<size_t>(layer)]) << layer;
  }
  EXPECT_TRUE(config.is_moe_layer(7)) << "an MTP layer with an odd id";
}

TEST(Config, ModelCutToItsDenseLayers_IsAllowed) {
  const ModelConfig config = patched(R"({"first_k_dense_replace": 9})");
  EXPECT_FALSE(config.is_moe_layer(3));
  EXPECT_TRUE(config.is_moe_layer(4));
}

// The spellings of one and the same rotation that files of different library versions have.
TEST(Config, RopeSpellings_MeanTheSame) {
  const ModelConfig expected = parse_config(kSmall, "test");
  json yarn = json::parse(kSmall)["rope_scaling"];
  json document = json::parse(kSmall);

  document["rope_scaling"]["rope_type"] = "yarn";
  EXPECT_EQ(parse_config(document.dump(), "both types"), expected);
  document["rope_scaling"].erase("type");
  EXPECT_EQ(parse_config(document.dump(), "rope_type"), expected);

  json parameters = document["rope_scaling"];
  parameters["rope_theta"] = 2000.0;
  document["rope_parameters"] = parameters;
  EXPECT_EQ(parse_config(document.dump(), "both blocks"), expected);
  document.erase("rope_scaling");
  EXPECT_EQ(parse_config(document.dump(), "theta twice"), expected);
  document.erase("rope_theta");
  EXPECT_EQ(parse_config(document.dump(), "transformers 5"), expected);
}

TEST(Config, PlainRope_InEverySpelling) {
  json document = json::parse(kSmall);
  const json no_scaling[] = {
      nullptr, {{"type", "default"}}, {{"rope_type", "default"}}, {{"type", nullptr}}, json::object()};
  for (const json& block : no_scaling) {
    document["rope_scaling"] = block;
    EXPECT_EQ(parse_config(document.dump(), "test").yarn, std::nullopt) << block;
  }
  document.erase("rope_scaling");
  EXPECT_EQ(parse_config(document.dump(), "test").yarn, std::nullopt);
  document.erase("rope_theta");
  document["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 3000}};
  EXPECT_EQ(parse_config(document.dump(), "test").rope_theta, 3000);
}

TEST(Config, YarnDefaults_AreThoseOfThePublishedCode) {
  json document = json::parse(kSmall);
  document["rope_scaling"] = {{"type", "yarn"}, {"factor", 3}, {"original_max_position_embeddings", 128}};
  const ModelConfig config = parse_config(document.dump(), "test");
  EXPECT_EQ(config.yarn->beta_fast, 32);
  EXPECT_EQ(config.yarn->beta_slow, 1);
  EXPECT_EQ(config.yarn->mscale, 1);
  EXPECT_EQ(config.yarn->mscale_all_dim, 0);
}

TEST(Config, ReadConfig_ReadsTheFileOfADirectory) {
  const TempDir directory;
  write_bytes(directory / "config.json", kSmall);
  EXPECT_EQ(read_config(directory.path()), parse_config(kSmall, "test"));
}

TEST(Config, ReadConfig_NoFileOrADirectoryInItsPlace_IsRefusedByPath) {
  const TempDir directory;
  const std::string path = (directory / "config.json").string();
  EXPECT_EQ(refusal_of([&] { read_config(directory.path()); }), path + ": expected a config.json file there");
  std::filesystem::create_directory(path);
  EXPECT_EQ(refusal_of([&] { read_config(directory.path()); }), path + ": expected a config.json file there");
}

}  // namespace
}  // namespace model
