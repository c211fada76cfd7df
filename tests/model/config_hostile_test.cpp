// Configs that must be refused, each with the field and the reason in one line.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "tests/model/config_texts.hpp"
#include "tests/model/hostile.hpp"

namespace model {
namespace {

using nlohmann::json;

struct Mutation {
  const char* pointer;  // JSON pointer into the small config
  const char* value;    // JSON text; empty removes the field
  const char* expected;
};

std::string mutated(const Mutation& mutation) {
  json document = json::parse(kSmall);
  const json::json_pointer pointer(mutation.pointer);
  if (std::string(mutation.value).empty()) {
    document.at(pointer.parent_pointer()).erase(pointer.back());
  } else {
    document[pointer] = json::parse(mutation.value);
  }
  return document.dump();
}

void expect_refusals(const std::vector<Mutation>& mutations) {
  for (const Mutation& mutation : mutations) {
    const std::string message = refusal_of([&] { parse_config(mutated(mutation), "dir/config.json"); });
    EXPECT_EQ(message, std::string("dir/config.json: ") + mutation.expected)
        << mutation.pointer << " " << mutation.value;
  }
}

TEST(HostileConfig, RequiredFields_AbsentOrNull_AreRefused) {
  expect_refusals({
      {"/vocab_size", "", "vocab_size is missing"},
      {"/hidden_size", "", "hidden_size is missing"},
      {"/intermediate_size", "", "intermediate_size is missing"},
      {"/moe_intermediate_size", "", "moe_intermediate_size is missing"},
      {"/num_hidden_layers", "", "num_hidden_layers is missing"},
      {"/num_attention_heads", "", "num_attention_heads is missing"},
      {"/kv_lora_rank", "", "kv_lora_rank is missing"},
      {"/qk_nope_head_dim", "", "qk_nope_head_dim is missing"},
      {"/qk_rope_head_dim", "", "qk_rope_head_dim is missing"},
      {"/v_head_dim", "", "v_head_dim is missing"},
      {"/n_routed_experts", "", "n_routed_experts is missing"},
      {"/n_shared_experts", "", "n_shared_experts is missing"},
      {"/num_experts_per_tok", "", "num_experts_per_tok is missing"},
      {"/first_k_dense_replace", "", "first_k_dense_replace is missing"},
      {"/rope_scaling/factor", "", "rope_scaling.factor is missing"},
      {"/rope_scaling/original_max_position_embeddings",
       "",
       "rope_scaling.original_max_position_embeddings is missing"},
      {"/hidden_size", "null", "hidden_size null: expected an integer"},
  });
}

TEST(HostileConfig, Types_NotTheOneOfTheField_AreRefused) {
  expect_refusals({
      {"/hidden_size", "\"256\"", "hidden_size \"256\": expected an integer"},
      {"/hidden_size", "256.0", "hidden_size 256.0: expected an integer"},
      {"/hidden_size", "true", "hidden_size true: expected an integer"},
      {"/hidden_size", "[256]", "hidden_size [256]: expected an integer"},
      {"/q_lora_rank", "{}", "q_lora_rank {}: expected an integer"},
      {"/norm_topk_prob", "1", "norm_topk_prob 1: expected true or false"},
      {"/tie_word_embeddings", "\"false\"", "tie_word_embeddings \"false\": expected true or false"},
      {"/rms_norm_eps", "\"1e-6\"", "rms_norm_eps \"1e-6\": expected a number"},
      {"/routed_scaling_factor", "true", "routed_scaling_factor true: expected a number"},
      {"/scoring_func", "1", "scoring_func 1: expected a string"},
      {"/rope_scaling", "\"yarn\"", "rope_scaling \"yarn\": expected an object"},
      {"/rope_scaling", "[]", "rope_scaling []: expected an object"},
      {"/quantization_config", "\"fp8\"", "quantization_config \"fp8\": expected an object"},
      {"/eos_token_id", "\"</s>\"", "eos_token_id \"</s>\": expected an integer"},
      {"/eos_token_id", "[1, null]", "eos_token_id [1,null]: expected an integer"},
  });
}

TEST(HostileConfig, Ranges_OutsideWhatMakesSense_AreRefused) {
  expect_refusals({
      {"/hidden_size", "0", "hidden_size 0: expected 1 to 2147483647"},
      {"/hidden_size", "-256", "hidden_size -256: expected 1 to 2147483647"},
      {"/hidden_size", "2147483648", "hidden_size 2147483648: expected 1 to 2147483647"},
      {"/hidden_size", "9223372036854775808", "hidden_size 9223372036854775808: expected 1 to 2147483647"},
      {"/hidden_size", "18446744073709551616", "hidden_size 1.8446744073709552e+19: expected an integer"},
      {"/q_lora_rank", "-1", "q_lora_rank -1: expected 0 to 2147483647"},
      {"/num_nextn_predict_layers", "-1", "num_nextn_predict_layers -1: expected 0 to 2147483647"},
      {"/first_k_dense_replace", "-1", "first_k_dense_replace -1: expected 0 to 2147483647"},
      {"/moe_layer_freq", "0", "moe_layer_freq 0: expected 1 to 2147483647"},
      {"/max_position_embeddings", "0", "max_position_embeddings 0: expected 1 to 2147483647"},
      {"/qk_rope_head_dim", "7", "qk_rope_head_dim 7: expected an even number, because RoPE rotates pairs"},
      {"/qk_rope_head_dim", "1", "qk_rope_head_dim 1: expected 2 to 2147483647"},
      {"/eos_token_id", "512", "eos_token_id 512: expected 0 to 511"},
      {"/eos_token_id", "[1, -1]", "eos_token_id [1,-1]: expected 0 to 511"},
      {"/bos_token_id", "-1", "bos_token_id -1: expected 0 to 511"},
      {"/rms_norm_eps", "0", "rms_norm_eps 0: expected a number above 0 (in FP32)"},
      {"/rms_norm_eps", "-1e-6", "rms_norm_eps -1e-06: expected a number above 0 (in FP32)"},
      {"/rms_norm_eps", "1e-60", "rms_norm_eps 1e-60: expected a number above 0 (in FP32)"},
      {"/rms_norm_eps", "1e60", "rms_norm_eps 1e+60: expected a number that FP32 can hold"},
      {"/routed_scaling_factor", "0", "routed_scaling_factor 0: expected a number above 0 (in FP32)"},
      {"/rope_theta", "1", "rope_theta 1: expected a number above 1"},
      {"/rope_theta", "-10000", "rope_theta -10000: expected a number above 0 (in FP32)"},
  });
}

TEST(HostileConfig, Router_ThatCannotChooseItsExperts_IsRefused) {
  expect_refusals({
      {"/n_group", "3", "n_group 3 does not divide n_routed_experts 16"},
      {"/n_group", "0", "n_group 0: expected 1 to 2147483647"},
      {"/n_group", "32", "n_group 32 does not divide n_routed_experts 16"},
      {"/n_group", "16", "n_group 16 leaves 1 expert a group, but noaux_tc scores a group by its two best"},
      {"/topk_group", "5", "topk_group 5 exceeds n_group 4"},
      {"/topk_group", "0", "topk_group 0: expected 1 to 2147483647"},
      {"/topk_group", "", "topk_group is missing, but n_group is 4"},
      {"/n_group", "", "topk_group 2 exceeds n_group 1"},
      {"/num_experts_per_tok",
       "9",
       "num_experts_per_tok 9 exceeds the 8 experts of the kept groups (topk_group 2 of 4 experts each)"},
      {"/num_experts_per_tok", "17", "num_experts_per_tok 17 exceeds n_routed_experts 16"},
      {"/num_experts_per_tok", "0", "num_experts_per_tok 0: expected 1 to 2147483647"},
      {"/scoring_func", "\"sqrtsoftplus\"", "scoring_func \"sqrtsoftplus\": expected one of sigmoid, softmax"},
      {"/topk_method", "\"hash\"", "topk_method \"hash\": expected one of noaux_tc, group_limited_greedy, greedy"},
  });
}

TEST(HostileConfig, Rope_OfAnotherKindOrContradicting_IsRefused) {
  expect_refusals({
      {"/rope_scaling/type", "\"linear\"", "rope_scaling.type \"linear\": expected yarn or default"},
      {"/rope_scaling/type", "\"dynamic\"", "rope_scaling.type \"dynamic\": expected yarn or default"},
      {"/rope_scaling/rope_type",
       "\"llama3\"",
       "rope_scaling.rope_type \"llama3\": expected the same as type, \"yarn\""},
      {"/rope_scaling/type", "4", "rope_scaling.type 4: expected a string"},
      {"/rope_scaling/type", "", "rope_scaling.factor 6: expected a rope_type (or type) beside it"},
      {"/rope_scaling/factor", "0", "rope_scaling.factor 0: expected a number above 0 (in FP32)"},
      {"/rope_scaling/factor", "-4", "rope_scaling.factor -4: expected a number above 0 (in FP32)"},
      {"/rope_scaling/beta_fast", "1", "rope_scaling.beta_fast 1: expected at least beta_slow, 2"},
      {"/rope_scaling/beta_slow", "0", "rope_scaling.beta_slow 0: expected a number above 0 (in FP32)"},
      {"/rope_scaling/mscale", "-1", "rope_scaling.mscale -1: expected 0 or more"},
      {"/rope_scaling/original_max_position_embeddings",
       "64.5",
       "rope_scaling.original_max_position_embeddings 64.5: expected an integer"},
      {"/rope_scaling/attention_factor",
       "1.5",
       "rope_scaling.attention_factor 1.5: expected none, because mscale and mscale_all_dim decide it"},
      {"/rope_scaling/truncate",
       "false",
       "rope_scaling.truncate false: expected true, because the ends of the ramp are whole numbers"},
      {"/rope_scaling/rope_theta", "3000", "rope_theta 2000: expected the same as in the other block, 3000"},
      {"/rope_parameters",
       R"({"rope_type": "default"})",
       "rope_scaling and rope_parameters disagree, expected one of them or the same values"},
      {"/rope_interleave",
       "false",
       "rope_interleave false: expected true, because the checkpoint stores interleaved pairs"},
  });
}

TEST(HostileConfig, Quantisation_OtherThanFp8In128Blocks_IsRefused) {
  expect_refusals({
      {"/quantization_config/quant_method", "\"awq\"", "quantization_config.quant_method \"awq\": expected \"fp8\""},
      {"/quantization_config/quant_method", "", "quantization_config.quant_method (absent): expected \"fp8\""},
      {"/quantization_config/fmt", "\"e5m2\"", "quantization_config.fmt \"e5m2\": expected e4m3"},
      {"/quantization_config/activation_scheme",
       "\"static\"",
       "quantization_config.activation_scheme \"static\": expected dynamic"},
      {"/quantization_config/weight_block_size",
       "",
       "quantization_config.weight_block_size (absent): expected [128, 128]"},
      {"/quantization_config/weight_block_size",
       "[64, 64]",
       "quantization_config.weight_block_size [64,64]: expected [128, 128]"},
      {"/quantization_config/weight_block_size",
       "128",
       "quantization_config.weight_block_size 128: expected [128, 128]"},
      {"/quantization_config/weight_block_size",
       "[128, 128, 128]",
       "quantization_config.weight_block_size [128,128,128]: expected [128, 128]"},
      {"/quantization_config/scale_fmt", "\"e8m0\"", "quantization_config.scale_fmt \"e8m0\": expected ue8m0"},
      {"/scale_fmt", "\"fp16\"", "scale_fmt \"fp16\": expected ue8m0"},
  });
}

TEST(HostileConfig, Architecture_WhatTheModelDoesNotHave_IsRefused) {
  expect_refusals({
      {"/model_type",
       "\"deepseek_v4\"",
       "model_type \"deepseek_v4\": expected one of deepseek_v3, deepseek_v32, deepseek_v2, kimi_k2"},
      {"/hidden_act", "\"gelu\"", "hidden_act \"gelu\": expected silu"},
      {"/attention_bias", "true", "attention_bias true: expected false, because the model has no biases"},
  });
}

// Sizes that are each in range, but whose products no int64_t counts or whose catalogue no memory holds.
TEST(HostileConfigSize, ProductsOfLargeDimensions_AreRefused) {
  const std::vector<std::vector<std::string>> groups = {{"hidden_size"},
                                                        {"vocab_size", "hidden_size"},
                                                        {"num_attention_heads", "v_head_dim"},
                                                        {"num_attention_heads", "qk_nope_head_dim", "q_lora_rank"},
                                                        {"kv_lora_rank", "hidden_size"},
                                                        {"intermediate_size", "hidden_size"},
                                                        {"n_shared_experts", "moe_intermediate_size"},
                                                        {"num_hidden_layers", "hidden_size"}};
  for (const std::vector<std::string>& keys : groups) {
    json document = json::parse(kSmall);
    for (const std::string& key : keys) {
      document[key] = 2147483647;
    }
    const std::string message = refusal_of([&] { parse_config(document.dump(), "c"); });
    EXPECT_NE(message.find("weights, expected at most 1.1e+15"), std::string::npos) << keys.front() << ": " << message;
  }
}

TEST(HostileConfigSize, MoreExpertsThanACatalogueHolds_AreRefused) {
  json document = json::parse(kSmall);
  for (const char* key : {"hidden_size", "moe_intermediate_size", "n_group", "topk_group"}) {
    document[key] = 1;
  }
  document["n_routed_experts"] = 100000000;
  EXPECT_EQ(refusal_of([&] { parse_config(document.dump(), "c"); }),
            "c: 5 layers with 100000000 experts each, expected at most 262144 experts and layers in all");
}

// The text itself.
TEST(HostileConfigText, WhatIsNotAJsonObject_IsRefused) {
  for (const std::string& text : std::vector<std::string>{"",
                                                          "{",
                                                          "{]",
                                                          "{\"hidden_size\": NaN}",
                                                          "{\"rms_norm_eps\": Infinity}",
                                                          "{\"rms_norm_eps\": 1e999}",
                                                          "{\"hidden_size\": 0x100}",
                                                          "{'hidden_size': 1}",
                                                          "{\"hidden_size\": 1,}",
                                                          "{} {}",
                                                          std::string("{\"a\": \"\xff\"}"),
                                                          std::string("\0\0\0", 3)}) {
    const std::string message = refusal_of([&] { parse_config(text, "c"); });
    EXPECT_EQ(message.find("c: not valid JSON"), 0u) << text << ": " << message;
  }
  for (const std::string text : {"[]", "null", "7", "\"config\""}) {
    EXPECT_EQ(refusal_of([&] { parse_config(text, "c"); }),
              "c: expected a JSON object with the fields of a config.json");
  }
}

TEST(HostileConfigText, RepeatedKey_IsRefusedAtAnyDepth) {
  std::string text = kSmall;
  text.insert(1, "\"hidden_size\": 128,");
  EXPECT_NE(refusal_of([&] { parse_config(text, "c"); }).find("hidden_size appears twice"), std::string::npos);
  text = kSmall;
  text.insert(text.find("\"factor\""), "\"factor\": 40, ");
  EXPECT_NE(refusal_of([&] { parse_config(text, "c"); }).find("factor appears twice"), std::string::npos);
}

TEST(HostileConfigText, DeepNesting_IsRefusedWithoutRecursion) {
  for (const char bracket : {'[', '{'}) {
    std::string text = "{\"a\": ";
    for (int i = 0; i < 100000; ++i) {
      text += bracket == '[' ? "[" : "{\"a\":";
    }
    EXPECT_NE(refusal_of([&] { parse_config(text, "c"); }).find("nested deeper than 32"), std::string::npos);
  }
}

TEST(HostileConfigText, OverlongText_IsRefusedUnparsed) {
  const std::string text = kSmall + std::string((1 << 20) + 1, ' ');
  EXPECT_NE(refusal_of([&] { parse_config(text, "c"); }).find("expected at most 1048576"), std::string::npos);
}

TEST(HostileConfigText, LongOrBinaryValue_StaysOneShortAsciiLine) {
  json document = json::parse(kSmall);
  document["hidden_act"] = std::string(10000, 'x') + "\n";
  document["hidden_act"].get_ref<std::string&>().insert(0, "\n\t\xc3\xa9\x7f");
  const std::string message = refusal_of([&] { parse_config(document.dump(), "c"); });
  EXPECT_LT(message.size(), 120u);
  for (const char c : message) {
    EXPECT_TRUE(c >= ' ' && c < 0x7f) << static_cast<int>(c);
  }
}

}  // namespace
}  // namespace model
