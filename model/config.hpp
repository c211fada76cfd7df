// What a DeepSeek-V3-architecture model is: every field of its Hugging Face config.json that the forward pass needs, validated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace model {

enum class ScoringFunction { kSigmoid, kSoftmax };
// noaux_tc: biased scores, group score = sum of the two best; group_limited_greedy: group score = best, no bias;
// greedy: no groups, no bias.
enum class TopkMethod { kNoauxTc, kGroupLimitedGreedy, kGreedy };
enum class ScaleFormat { kFp32, kUe8m0 };

// YaRN. Absent from the config: plain RoPE.
struct YarnConfig {
  double factor = 1;
  int64_t original_max_position_embeddings = 0;
  double beta_fast = 32;
  double beta_slow = 1;
  double mscale = 1;
  double mscale_all_dim = 0;

  bool operator==(const YarnConfig&) const = default;
};

struct QuantizationConfig {
  int64_t block_rows = 128;
  int64_t block_cols = 128;
  ScaleFormat scale_fmt = ScaleFormat::kFp32;

  bool operator==(const QuantizationConfig&) const = default;
};

struct ModelConfig {
  std::string model_type = "deepseek_v3";
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t moe_intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_nextn_predict_layers = 0;  // MTP layers, ids num_hidden_layers + k
  int64_t first_k_dense_replace = 0;
  int64_t moe_layer_freq = 1;
  int64_t num_attention_heads = 0;
  std::optional<int64_t> q_lora_rank;  // absent, null or 0 in the file: one q_proj
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  int64_t n_routed_experts = 0;  // 0: every layer is dense
  int64_t n_shared_experts = 0;
  int64_t num_experts_per_tok = 0;
  int64_t n_group = 1;  // 1 whatever the file says when topk_method is greedy, which knows no groups
  int64_t topk_group = 1;
  ScoringFunction scoring_func = ScoringFunction::kSigmoid;
  TopkMethod topk_method = TopkMethod::kNoauxTc;
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1;
  double rms_norm_eps = 1e-6;
  int64_t max_position_embeddings = 0;
  double rope_theta = 10000;
  std::optional<YarnConfig> yarn;
  bool tie_word_embeddings = false;
  std::optional<QuantizationConfig> quantization;  // absent: the linear weights are BF16
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> bos_token_id;
  // Keys of the file that no field above covers and that are not known to be irrelevant to inference: worth a warning.
  std::vector<std::string> unknown_keys;

  bool operator==(const ModelConfig&) const = default;

  [[nodiscard]] int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  [[nodiscard]] int64_t latent_dim() const { return kv_lora_rank + qk_rope_head_dim; }
  [[nodiscard]] int64_t experts_per_group() const { return n_routed_experts / n_group; }
  [[nodiscard]] int64_t shared_intermediate_size() const { return n_shared_experts * moe_intermediate_size; }
  // Layers with id >= num_hidden_layers are MTP layers, whose FFN is MoE whenever the model has experts.
  [[nodiscard]] bool is_moe_layer(int64_t layer) const;
  [[nodiscard]] bool has_router_bias() const { return topk_method == TopkMethod::kNoauxTc; }
};

// Parses the text of a config.json. `origin` (a path) opens every message. Throws InputError naming the field, its value and
// what was expected: a missing or mistyped field, an absurd size, an odd rope dim, a router that cannot choose its experts.
ModelConfig parse_config(std::string_view json_text, const std::string& origin);
// Reads DIR/config.json. Throws InputError.
ModelConfig read_config(const std::filesystem::path& directory);
// "deepseek-v3" or "kimi-k2", for accounting without a checkpoint. Throws InputError listing the known names.
ModelConfig built_in_config(std::string_view name);

}  // namespace model
