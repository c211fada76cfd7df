#include "simulator/described_model.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/check.hpp"
#include "model/op_list.hpp"
#include "model/strict_json.hpp"

namespace simulator {
namespace {

constexpr uintmax_t kMaxConfigBytes = 1 << 20;
constexpr size_t kMaxConfigDepth = 32;

std::string read_text(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    model::throw_input_error(
        "model {}: expected {}, or the path of a config.json", path.string(), built_in_model_names());
  }
  if (std::filesystem::file_size(path, error) > kMaxConfigBytes) {
    model::throw_input_error("{}: expected a config.json of at most {} bytes", path.string(), kMaxConfigBytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !text) {
    model::throw_input_error("{}: cannot be read", path.string());
  }
  return text.str();
}

DescribedModel load_file(const std::string& name) {
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(name, error);
  const auto path = is_directory ? std::filesystem::path(name) / "config.json" : std::filesystem::path(name);
  const std::string text = read_text(path);
  const nlohmann::json document = model::parse_strict_json(text, path.string(), kMaxConfigDepth);
  if (!document.is_object()) {
    model::throw_input_error("{}: expected a JSON object with the fields of a config.json", path.string());
  }
  return document.contains("kv_lora_rank") ? describe(name, model::parse_config(text, path.string()))
                                           : describe(name, parse_gqa_config(document, path.string()));
}

TokenFlops flops_of(const model::ModelConfig& config, const model::Workload& workload) {
  TokenFlops flops;
  for (const model::Op& op : model::op_list(config, workload)) {
    if (!op.optional) {
      (op.weights.empty() ? flops.attention : flops.weights) += static_cast<double>(op.flops);
    }
  }
  return flops;
}

// Every weight matrix that a token meets, once: the table is looked up, not multiplied (unless it is the head as well).
double gqa_weight_flops(const DescribedModel& described, const GqaConfig& config) {
  double flops = 0;
  for (const model::CatalogTensor& tensor : described.bf16_tensors) {
    const bool is_lookup = tensor.name == "model.embed_tokens.weight" && !config.tie_word_embeddings;
    if (tensor.role != model::TensorRole::kNorm && !is_lookup && tensor.expert < config.num_experts_per_tok) {
      flops += 2 * static_cast<double>(model::num_elements(tensor.shape));
    }
  }
  return flops;
}

// Scores and weighted values over `positions` keys.
double gqa_attention_flops(const GqaConfig& config, double positions) {
  return 4 * static_cast<double>(config.num_hidden_layers * config.num_attention_heads * config.head_dim) * positions;
}

}  // namespace

std::string_view built_in_model_names() {
  return "deepseek-v3, kimi-k2, mixtral-8x7b, llama-3-70b, llama-3-8b";
}

DescribedModel load_model(const std::string& name_or_path) {
  if (name_or_path == "deepseek-v3" || name_or_path == "kimi-k2") {
    return describe(name_or_path, model::built_in_config(name_or_path));
  }
  if (const std::optional<GqaConfig> config = built_in_gqa_config(name_or_path)) {
    return describe(name_or_path, *config);
  }
  return load_file(name_or_path);
}

DescribedModel describe(const std::string& name, const model::ModelConfig& config) {
  model::ModelConfig bf16_config = config;
  bf16_config.quantization.reset();
  model::ModelConfig fp8_config = config;
  fp8_config.quantization = config.quantization.value_or(model::QuantizationConfig{});
  DescribedModel described{.name = name,
                           .config = config,
                           .attention = "MLA",
                           .hidden_size = config.hidden_size,
                           .num_layers = config.num_hidden_layers,
                           .num_experts = config.n_routed_experts,
                           .experts_per_token = config.num_experts_per_tok,
                           .num_groups = config.n_group,
                           .kept_groups = config.topk_group,
                           .kv_values_per_token = config.num_hidden_layers * config.latent_dim(),
                           .kv_values_per_token_mha = config.num_hidden_layers * config.num_attention_heads *
                                                      (config.qk_head_dim() + config.v_head_dim),
                           .bf16_tensors = model::tensor_catalog(bf16_config),
                           .fp8_tensors = model::tensor_catalog(fp8_config)};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    described.num_moe_layers += config.is_moe_layer(layer) ? 1 : 0;
  }
  return described;
}

DescribedModel describe(const std::string& name, const GqaConfig& config) {
  const int64_t layer_width = 2 * config.num_hidden_layers * config.head_dim;  // a key and a value of one head
  DescribedModel described{.name = name,
                           .config = config,
                           .attention = std::string(config.attention_name()),
                           .hidden_size = config.hidden_size,
                           .num_layers = config.num_hidden_layers,
                           .num_experts = config.num_experts,
                           .experts_per_token = config.num_experts_per_tok,
                           .kv_values_per_token = layer_width * config.num_key_value_heads,
                           .kv_values_per_token_mha = layer_width * config.num_attention_heads,
                           .bf16_tensors = gqa_catalog(config, std::nullopt),
                           .fp8_tensors = gqa_catalog(config, model::QuantizationConfig{})};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    described.num_moe_layers += config.is_moe_layer(layer) ? 1 : 0;
  }
  return described;
}

TokenFlops decode_flops(const DescribedModel& described, int64_t context) {
  CHECK(context > 0);
  if (const auto* config = std::get_if<GqaConfig>(&described.config)) {
    return {.weights = gqa_weight_flops(described, *config),
            .attention = gqa_attention_flops(*config, static_cast<double>(context))};
  }
  return flops_of(
      *described.mla_config(),
      {.sequences = {{.num_cached = context - 1, .num_new = 1}}, .attention_form = model::AttentionForm::kAbsorbed});
}

TokenFlops prefill_flops(const DescribedModel& described, int64_t context) {
  CHECK(context > 0);
  if (const auto* config = std::get_if<GqaConfig>(&described.config)) {
    return {.weights = gqa_weight_flops(described, *config),
            .attention = gqa_attention_flops(*config, (static_cast<double>(context) + 1) / 2)};
  }
  TokenFlops flops = flops_of(*described.mla_config(), {.sequences = {{.num_cached = 0, .num_new = context}}});
  flops.weights /= static_cast<double>(context);
  flops.attention /= static_cast<double>(context);
  return flops;
}

}  // namespace simulator
