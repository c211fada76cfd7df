#include "model/config.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/check.hpp"
#include "model/config_sections.hpp"
#include "model/strict_json.hpp"

namespace model {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr size_t kMaxConfigDepth = 32;
// Far above any published model, far below what would overflow an int64_t of bytes or fill the memory with a catalogue.
constexpr double kMaxWeights = 0x1p50;
constexpr double kMaxExpertInstances = 1 << 18;

// Both sums are taken in double so that they cannot overflow; below the limits every product of dimensions fits an int64_t.
void check_total_size(const JsonFields& fields, const ModelConfig& config) {
  const auto hidden = static_cast<double>(config.hidden_size);
  const auto heads = static_cast<double>(config.num_attention_heads);
  const auto num_layers =
      static_cast<double>(config.num_hidden_layers) + static_cast<double>(config.num_nextn_predict_layers);
  const auto experts = static_cast<double>(config.n_routed_experts);
  const auto kv_lora = static_cast<double>(config.kv_lora_rank);
  const double query_dim = heads * static_cast<double>(config.qk_head_dim());
  const double value_dim = heads * static_cast<double>(config.v_head_dim);
  const double key_value_dim = heads * static_cast<double>(config.qk_nope_head_dim) + value_dim;
  const double query =
      config.q_lora_rank ? static_cast<double>(*config.q_lora_rank) * (hidden + query_dim) : hidden * query_dim;
  const double attention =
      query + hidden * static_cast<double>(config.latent_dim()) + kv_lora * key_value_dim + value_dim * hidden;
  const double ffn_width =
      static_cast<double>(config.intermediate_size) +
      (experts + static_cast<double>(config.n_shared_experts)) * static_cast<double>(config.moe_intermediate_size);
  const double weights = num_layers * (attention + 3 * hidden * ffn_width + hidden * experts + 2 * hidden * hidden) +
                         2 * (num_layers + 1) * static_cast<double>(config.vocab_size) * hidden;
  if (weights > kMaxWeights) {
    fields.fail(fmt::format(
        "the dimensions together describe up to {:.2g} weights, expected at most {:.2g}", weights, kMaxWeights));
  }
  if (num_layers * (experts + 1) > kMaxExpertInstances) {
    fields.fail(fmt::format("{} layers with {} experts each, expected at most {} experts and layers in all",
                            num_layers,
                            experts,
                            kMaxExpertInstances));
  }
}

}  // namespace

bool ModelConfig::is_moe_layer(int64_t layer) const {
  if (n_routed_experts == 0) {
    return false;
  }
  return layer >= num_hidden_layers || (layer >= first_k_dense_replace && layer % moe_layer_freq == 0);
}

// Fields that a file may leave out: q_lora_rank (none), num_nextn_predict_layers (0), moe_layer_freq (1), n_group and topk_group
// (1), rms_norm_eps (1e-6), rope_theta (10000), rope_scaling (none), max_position_embeddings (4096), tie_word_embeddings (false),
// attention_bias (false), hidden_act (silu), quantization_config (none), token ids (none), and with another value for
// deepseek_v2: scoring_func, topk_method, norm_topk_prob, routed_scaling_factor.
ModelConfig parse_config(std::string_view json_text, const std::string& origin) {
  if (json_text.size() > kMaxConfigBytes) {
    throw_input_error("{}: {} bytes, expected at most {}", origin, json_text.size(), kMaxConfigBytes);
  }
  const nlohmann::json document = parse_strict_json(json_text, origin, kMaxConfigDepth);
  if (!document.is_object()) {
    throw_input_error("{}: expected a JSON object with the fields of a config.json", origin);
  }
  JsonFields fields(document, origin, "");
  ModelConfig config;
  read_model_type(fields, config);
  read_shape(fields, config);
  read_experts(fields, config);
  read_rope(fields, config);
  read_quantization(fields, config);
  read_tokens(fields, config);
  read_rest(fields, config);
  check_total_size(fields, config);
  return config;
}

ModelConfig read_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw_input_error("{}: expected a config.json file there", path.string());
  }
  if (std::filesystem::file_size(path, error) > kMaxConfigBytes) {
    throw_input_error("{}: expected at most {} bytes", path.string(), kMaxConfigBytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !text) {
    throw_input_error("{}: cannot be read", path.string());
  }
  return parse_config(text.str(), path.string());
}

}  // namespace model
