// What a decoder with plain multi-head, grouped-query or multi-query attention is: the fields of its Hugging Face config.json
// that accounting needs, validated. Models with latent attention are model/config's business.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"
#include "model/tensor_catalog.hpp"

namespace simulator {

struct GqaConfig {
  std::string model_type = "llama";
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t num_experts = 0;  // 0: every layer is dense
  int64_t num_experts_per_tok = 0;
  int64_t moe_intermediate_size = 0;
  int64_t moe_layer_freq = 1;           // layer l has experts when (l + 1) is a multiple of it ...
  std::vector<int64_t> dense_layers{};  // ... and l is not one of these
  bool tie_word_embeddings = false;
  bool has_qkv_bias = false;
  bool has_qk_norm = false;  // a gain of head_dim for queries and one for keys

  bool operator==(const GqaConfig&) const = default;

  [[nodiscard]] bool is_moe_layer(int64_t layer) const;
  // "MHA", "GQA" or "MQA".
  [[nodiscard]] std::string_view attention_name() const;
};

// From a parsed config.json of model_type llama, mistral, mixtral, qwen2, qwen3 or qwen3_moe. `origin` opens every message.
// Throws InputError naming the field: missing, mistyped, out of range, or something that accounting does not know (biases,
// windowed attention, another model_type).
GqaConfig parse_gqa_config(const nlohmann::json& document, const std::string& origin);

// "mixtral-8x7b", "llama-3-70b", "llama-3-8b"; empty for any other name.
std::optional<GqaConfig> built_in_gqa_config(std::string_view name);

// Every tensor, in the names that model/tensor_catalog uses. `quantization` cuts the linear weights into scaled FP8 blocks.
std::vector<model::CatalogTensor> gqa_catalog(const GqaConfig& config,
                                              const std::optional<model::QuantizationConfig>& quantization);

}  // namespace simulator
