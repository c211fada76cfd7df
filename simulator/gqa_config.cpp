#include "simulator/gqa_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "model/check.hpp"
#include "model/json_fields.hpp"

namespace simulator {
namespace {

using model::JsonFields;

constexpr std::array<std::string_view, 6> kModelTypes{"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe"};
// Far above any published model, far below what would overflow an int64_t of bytes or fill the memory with a catalogue.
constexpr double kMaxWeights = 0x1p50;
constexpr int64_t kMaxExpertInstances = 1 << 18;

void read_model_type(JsonFields& fields, GqaConfig& config) {
  config.model_type = fields.text_or("model_type", "");
  if (std::ranges::find(kModelTypes, config.model_type) == kModelTypes.end()) {
    fields.refuse("model_type",
                  fmt::format("expected one of {}, or a config with kv_lora_rank (MLA)", fmt::join(kModelTypes, ", ")));
  }
}

void read_shape(JsonFields& fields, GqaConfig& config) {
  config.vocab_size = fields.integer("vocab_size", 1);
  config.hidden_size = fields.integer("hidden_size", 1);
  config.intermediate_size = fields.integer("intermediate_size", 1);
  config.num_hidden_layers = fields.integer("num_hidden_layers", 1);
  config.num_attention_heads = fields.integer("num_attention_heads", 1);
  config.num_key_value_heads = fields.integer_or("num_key_value_heads", config.num_attention_heads, 1);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    fields.refuse("num_key_value_heads", fmt::format("expected a divisor of the {} heads", config.num_attention_heads));
  }
  if (!fields.has("head_dim") && config.hidden_size % config.num_attention_heads != 0) {
    fields.fail(fmt::format("without head_dim, num_attention_heads {} must divide hidden_size {}",
                            config.num_attention_heads,
                            config.hidden_size));
  }
  config.head_dim = fields.integer_or("head_dim", config.hidden_size / config.num_attention_heads, 1);
  config.tie_word_embeddings = fields.boolean_or("tie_word_embeddings", false);
}

void read_experts(JsonFields& fields, GqaConfig& config) {
  const bool is_mixtral = config.model_type == "mixtral";
  if (!is_mixtral && config.model_type != "qwen3_moe") {
    return;
  }
  config.num_experts = fields.integer(is_mixtral ? "num_local_experts" : "num_experts", 1);
  config.num_experts_per_tok = fields.integer("num_experts_per_tok", 1, config.num_experts);
  config.moe_intermediate_size = is_mixtral ? config.intermediate_size : fields.integer("moe_intermediate_size", 1);
  if (!is_mixtral) {
    config.moe_layer_freq = fields.integer_or("decoder_sparse_step", 1, 1);
    config.dense_layers = fields.integers("mlp_only_layers", 0, config.num_hidden_layers - 1);
  }
  if (config.num_experts > kMaxExpertInstances / config.num_hidden_layers) {
    fields.fail(fmt::format("{} layers with {} experts each, expected at most {} experts in all",
                            config.num_hidden_layers,
                            config.num_experts,
                            kMaxExpertInstances));
  }
}

void read_attention(JsonFields& fields, GqaConfig& config) {
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    if (fields.boolean_or(bias, false)) {
      fields.refuse(bias, "expected false");
    }
  }
  const bool is_mistral = config.model_type == "mistral" || config.model_type == "mixtral";
  if (fields.has("sliding_window") && fields.boolean_or("use_sliding_window", is_mistral)) {
    fields.refuse("sliding_window", "expected null: attention that sees a window is not covered");
  }
  config.has_qkv_bias = config.model_type == "qwen2";
  config.has_qk_norm = config.model_type.starts_with("qwen3");
}

// In double, so that it cannot overflow.
void check_total_size(const JsonFields& fields, const GqaConfig& config) {
  const auto hidden = static_cast<double>(config.hidden_size);
  const auto heads = static_cast<double>(config.num_attention_heads);
  const double attention = 4 * hidden * heads * static_cast<double>(config.head_dim);
  const double ffn_width = static_cast<double>(config.intermediate_size) +
                           static_cast<double>(config.num_experts) * static_cast<double>(config.moe_intermediate_size);
  const double weights = static_cast<double>(config.num_hidden_layers) *
                             (attention + 3 * hidden * ffn_width + hidden * static_cast<double>(config.num_experts)) +
                         2 * static_cast<double>(config.vocab_size) * hidden;
  if (weights > kMaxWeights || config.num_hidden_layers > kMaxExpertInstances) {
    fields.fail(fmt::format("{} layers and up to {:.2g} weights, expected at most {} and {:.2g}",
                            config.num_hidden_layers,
                            weights,
                            kMaxExpertInstances,
                            kMaxWeights));
  }
}

}  // namespace

bool GqaConfig::is_moe_layer(int64_t layer) const {
  return num_experts > 0 && (layer + 1) % moe_layer_freq == 0 &&
         std::ranges::find(dense_layers, layer) == dense_layers.end();
}

std::string_view GqaConfig::attention_name() const {
  if (num_key_value_heads == num_attention_heads) {
    return "MHA";
  }
  return num_key_value_heads == 1 ? "MQA" : "GQA";
}

GqaConfig parse_gqa_config(const nlohmann::json& document, const std::string& origin) {
  JsonFields fields(document, origin, "");
  GqaConfig config;
  read_model_type(fields, config);
  read_shape(fields, config);
  read_experts(fields, config);
  read_attention(fields, config);
  check_total_size(fields, config);
  return config;
}

// Sources: config.json of Mixtral-8x7B-v0.1, Meta-Llama-3-70B and Meta-Llama-3-8B.
std::optional<GqaConfig> built_in_gqa_config(std::string_view name) {
  if (name == "mixtral-8x7b") {
    return GqaConfig{.model_type = "mixtral",
                     .vocab_size = 32000,
                     .hidden_size = 4096,
                     .intermediate_size = 14336,
                     .num_hidden_layers = 32,
                     .num_attention_heads = 32,
                     .num_key_value_heads = 8,
                     .head_dim = 128,
                     .num_experts = 8,
                     .num_experts_per_tok = 2,
                     .moe_intermediate_size = 14336};
  }
  GqaConfig llama{.vocab_size = 128256, .num_key_value_heads = 8, .head_dim = 128};
  if (name == "llama-3-70b") {
    llama.hidden_size = 8192;
    llama.intermediate_size = 28672;
    llama.num_hidden_layers = 80;
    llama.num_attention_heads = 64;
    return llama;
  }
  if (name == "llama-3-8b") {
    llama.hidden_size = 4096;
    llama.intermediate_size = 14336;
    llama.num_hidden_layers = 32;
    llama.num_attention_heads = 32;
    return llama;
  }
  return std::nullopt;
}

}  // namespace simulator
