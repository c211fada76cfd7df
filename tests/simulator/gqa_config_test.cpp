#include "simulator/gqa_config.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "simulator/accounting.hpp"
#include "tests/paths.hpp"
#include "tests/temp_dir.hpp"

namespace simulator {
namespace {

using nlohmann::json;

json llama_2_7b() {
  return {{"model_type", "llama"},
          {"vocab_size", 32000},
          {"hidden_size", 4096},
          {"intermediate_size", 11008},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32}};
}

int64_t num_weights(const json& document) {
  return weight_totals(describe("test", parse_gqa_config(document, "config.json"))).all.weights;
}

// What the message of the refusal says.
std::string refusal(const json& document) {
  try {
    parse_gqa_config(document, "config.json");
  } catch (const model::InputError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_refused(const json& document, const std::string& part) {
  const std::string message = refusal(document);
  EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(message.find("config.json: "), 0U) << message;
}

// Totals as the model cards and checkpoint indices give them.
TEST(GqaConfig, PublishedConfigs_GiveThePublishedTotals) {
  EXPECT_EQ(num_weights(llama_2_7b()), 6'738'415'616);
  EXPECT_EQ(num_weights({{"model_type", "qwen2"},
                         {"vocab_size", 152064},
                         {"hidden_size", 3584},
                         {"intermediate_size", 18944},
                         {"num_hidden_layers", 28},
                         {"num_attention_heads", 28},
                         {"num_key_value_heads", 4},
                         {"sliding_window", 131072},
                         {"use_sliding_window", false}}),
            7'615'616'512);
  EXPECT_EQ(num_weights({{"model_type", "qwen3_moe"},
                         {"vocab_size", 151936},
                         {"hidden_size", 2048},
                         {"intermediate_size", 6144},
                         {"moe_intermediate_size", 768},
                         {"num_hidden_layers", 48},
                         {"num_attention_heads", 32},
                         {"num_key_value_heads", 4},
                         {"head_dim", 128},
                         {"num_experts", 128},
                         {"num_experts_per_tok", 8},
                         {"decoder_sparse_step", 1},
                         {"mlp_only_layers", json::array()}}),
            30'532'122'624);
}

TEST(GqaConfig, NoKeyValueHeads_IsMha) {
  const GqaConfig config = parse_gqa_config(llama_2_7b(), "config.json");
  EXPECT_EQ(config.attention_name(), "MHA");
  EXPECT_EQ(config.num_key_value_heads, 32);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(2 * describe("test", config).kv_values_per_token, 512 * 1024);  // 2 x 32 layers x 4096 x 2 bytes
}

TEST(GqaConfig, OneKeyValueHead_IsMqa) {
  json document = llama_2_7b();
  document["num_key_value_heads"] = 1;
  EXPECT_EQ(parse_gqa_config(document, "config.json").attention_name(), "MQA");
}

TEST(GqaConfig, TiedEmbeddings_CountOnceAndStayActive) {
  json document = llama_2_7b();
  document["tie_word_embeddings"] = true;
  const WeightTotals totals = weight_totals(describe("test", parse_gqa_config(document, "config.json")));
  EXPECT_EQ(totals.all.weights, 6'738'415'616 - 32000LL * 4096);
  EXPECT_EQ(totals.num_active_without_embedding, totals.all.weights);
  EXPECT_EQ(totals.num_active_without_tables, totals.all.weights - 32000LL * 4096);
  EXPECT_EQ(totals.always.weights, totals.all.weights);
}

TEST(GqaConfig, SparseStepAndDenseLayers_DecideWhichLayersHaveExperts) {
  const GqaConfig config{.num_experts = 4, .moe_layer_freq = 2, .dense_layers = {3}};
  EXPECT_FALSE(config.is_moe_layer(0));
  EXPECT_TRUE(config.is_moe_layer(1));
  EXPECT_FALSE(config.is_moe_layer(2));
  EXPECT_FALSE(config.is_moe_layer(3));
  EXPECT_TRUE(config.is_moe_layer(5));
}

TEST(GqaConfig, BuiltIn_EqualsItsPublishedFile) {
  const json mixtral{{"model_type", "mixtral"},
                     {"vocab_size", 32000},
                     {"hidden_size", 4096},
                     {"intermediate_size", 14336},
                     {"num_hidden_layers", 32},
                     {"num_attention_heads", 32},
                     {"num_key_value_heads", 8},
                     {"num_local_experts", 8},
                     {"num_experts_per_tok", 2},
                     {"sliding_window", nullptr},
                     {"rope_theta", 1000000.0},
                     {"tie_word_embeddings", false}};
  EXPECT_EQ(parse_gqa_config(mixtral, "config.json"), built_in_gqa_config("mixtral-8x7b"));
  EXPECT_FALSE(built_in_gqa_config("llama-4").has_value());
}

TEST(GqaConfig, WhatAccountingDoesNotKnow_IsRefusedByName) {
  const auto with = [](const char* key, const json& value) {
    json document = llama_2_7b();
    document[key] = value;
    return document;
  };
  expect_refused(with("model_type", "gemma"), "model_type \"gemma\": expected one of llama");
  expect_refused(with("attention_bias", true), "attention_bias true: expected false");
  expect_refused(with("num_key_value_heads", 5), "num_key_value_heads 5: expected a divisor of the 32 heads");
  expect_refused(with("num_attention_heads", 31), "must divide hidden_size 4096");
  expect_refused(with("hidden_size", "wide"), "hidden_size \"wide\": expected an integer");
  expect_refused(with("num_hidden_layers", -3), "num_hidden_layers -3: expected 1 to");
  expect_refused(with("vocab_size", nullptr), "vocab_size");
  expect_refused(with("num_hidden_layers", 2'000'000'000), "expected at most");
  json windowed = with("model_type", "mistral");
  windowed["sliding_window"] = 4096;
  expect_refused(windowed, "sliding_window 4096: expected null");
}

TEST(GqaConfig, ExpertsThatCannotBeChosen_AreRefused) {
  json document = llama_2_7b();
  document["model_type"] = "mixtral";
  document["num_local_experts"] = 8;
  document["num_experts_per_tok"] = 9;
  expect_refused(document, "num_experts_per_tok 9: expected 1 to 8");
  document["num_experts_per_tok"] = 2;
  document["num_local_experts"] = 100'000;
  expect_refused(document, "expected at most 262144 experts in all");
}

TEST(LoadModel, FileOrItsDirectory_IsReadByItsKindOfAttention) {
  const TempDir directory;
  write_bytes(directory / "config.json", llama_2_7b().dump());
  EXPECT_EQ(load_model((directory / "config.json").string()).attention, "MHA");
  EXPECT_EQ(load_model(directory.path().string()).attention, "MHA");
  EXPECT_EQ(load_model((source_dir() / "golden/data/mini/checkpoint").string()).attention, "MLA");
  write_bytes(directory / "broken.json", "{");
  EXPECT_THROW(load_model((directory / "broken.json").string()), model::InputError);
  write_bytes(directory / "list.json", "[]");
  EXPECT_THROW(load_model((directory / "list.json").string()), model::InputError);
}

}  // namespace
}  // namespace simulator
