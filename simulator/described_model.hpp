// Any model that accounting knows, reduced to the facts that counting needs. The catalogues say everything about weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/config.hpp"
#include "model/tensor_catalog.hpp"
#include "simulator/gqa_config.hpp"

namespace simulator {

struct DescribedModel {
  std::string name;  // as the user gave it
  std::variant<model::ModelConfig, GqaConfig> config;
  std::string attention;  // "MLA", "GQA", "MHA", "MQA"
  int64_t hidden_size = 0;
  int64_t num_layers = 0;  // without MTP layers
  int64_t num_moe_layers = 0;
  int64_t num_experts = 0;  // of a layer; 0: dense
  int64_t experts_per_token = 0;
  int64_t num_groups = 1;
  int64_t kept_groups = 1;
  int64_t kv_values_per_token = 0;      // in the cache, all layers
  int64_t kv_values_per_token_mha = 0;  // what the same heads would take with a key and a value each
  std::vector<model::CatalogTensor> bf16_tensors;
  std::vector<model::CatalogTensor>
      fp8_tensors;  // linear weights as 128x128-scaled blocks, the rest as in bf16_tensors

  [[nodiscard]] const model::ModelConfig* mla_config() const { return std::get_if<model::ModelConfig>(&config); }
};

// "deepseek-v3, kimi-k2, ...": the names that load_model() knows.
std::string_view built_in_model_names();

// A built-in name, the path of a config.json, or a directory that holds one. Throws InputError.
DescribedModel load_model(const std::string& name_or_path);

DescribedModel describe(const std::string& name, const model::ModelConfig& config);
DescribedModel describe(const std::string& name, const GqaConfig& config);

// Multiply and add count 2. Elementwise work is not counted.
struct TokenFlops {
  double weights = 0;    // products with weights
  double attention = 0;  // with what is in the cache

  [[nodiscard]] double total() const { return weights + attention; }
};

// One new token that sees `context` positions, itself included (MLA: absorbed form).
TokenFlops decode_flops(const DescribedModel& described, int64_t context);
// The average token of a prompt of `context` tokens (causal; MLA: expanded form).
TokenFlops prefill_flops(const DescribedModel& described, int64_t context);

}  // namespace simulator
