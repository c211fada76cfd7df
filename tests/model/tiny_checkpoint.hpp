// A checkpoint of a few kilobytes to damage in tests: FP8 with ragged scale blocks, a dense, a MoE and an MTP layer.
#pragma once

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/safetensors.hpp"
#include "model/tensor_catalog.hpp"
#include "tests/temp_dir.hpp"

struct TinyCheckpoint {
  nlohmann::json config;
  std::map<std::string, model::TensorView> tensors;
  std::map<std::string, std::string> weight_map;  // tensor -> shard

  static constexpr const char* kFirstShard = "model-00001-of-000002.safetensors";
  static constexpr const char* kSecondShard = "model-00002-of-000002.safetensors";
  static constexpr const char* kIndex = "model.safetensors.index.json";

  void add(const std::string& name, model::TensorView tensor, const std::string& shard = kFirstShard) {
    tensors[name] = std::move(tensor);
    weight_map[name] = shard;
  }

  void remove(const std::string& name) {
    tensors.erase(name);
    weight_map.erase(name);
  }

  void write(const std::filesystem::path& directory) const {
    std::map<std::string, std::vector<std::pair<std::string, model::TensorView>>> shards;
    for (const auto& [name, shard] : weight_map) {
      shards[shard].emplace_back(name, tensors.at(name));
    }
    for (const auto& [shard, contents] : shards) {
      model::write_safetensors(directory / shard, contents, {{"format", "pt"}});
    }
    write_bytes(directory / "config.json", config.dump(2));
    write_bytes(directory / kIndex, nlohmann::json{{"metadata", {}}, {"weight_map", weight_map}}.dump(2));
  }
};

inline nlohmann::json tiny_config() {
  return nlohmann::json::parse(R"({
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 16, "hidden_size": 64,
    "intermediate_size": 160, "moe_intermediate_size": 32, "num_hidden_layers": 2, "num_nextn_predict_layers": 1,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 2.5,
    "rms_norm_eps": 1e-06, "max_position_embeddings": 64, "rope_theta": 10000, "hidden_act": "silu",
    "attention_bias": false, "tie_word_embeddings": false, "bos_token_id": 0, "eos_token_id": 1,
    "torch_dtype": "bfloat16",
    "quantization_config": {
      "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
  })");
}

// Small values, different from element to element: +-(1 + i % 7) / 8, positive only where they must be.
inline model::TensorView tiny_tensor(model::DType dtype, const model::Shape& shape, bool positive) {
  const auto count = static_cast<size_t>(model::num_elements(shape));
  const auto step = static_cast<size_t>(model::dtype_bytes(dtype));
  std::vector<std::byte> bytes(count * step);
  for (size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(1 + i % 7) / 8 * (positive || i % 2 == 0 ? 1.0f : -1.0f);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    if (dtype == model::DType::kF8E4M3) {
      bits = 0x20 + i % 64 + (i % 2 == 0 ? 0 : 0x80);
    } else if (dtype == model::DType::kBF16) {
      bits >>= 16;
    }
    std::memcpy(bytes.data() + i * step, &bits, step);
  }
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {dtype, shape, *owner, owner};
}

// Every tensor that the catalogue of `config` lists. Scales lie in another shard than their weights.
inline TinyCheckpoint tiny_checkpoint(const nlohmann::json& config = tiny_config()) {
  TinyCheckpoint checkpoint{config, {}, {}};
  for (const model::CatalogTensor& entry : model::tensor_catalog(model::parse_config(config.dump(), "tiny"))) {
    const bool is_scale = entry.role == model::TensorRole::kScale;
    const bool is_in_second = is_scale != (entry.layer == 0);
    checkpoint.add(entry.name,
                   tiny_tensor(entry.dtype, entry.shape, is_scale || entry.role == model::TensorRole::kNorm),
                   is_in_second ? TinyCheckpoint::kSecondShard : TinyCheckpoint::kFirstShard);
  }
  return checkpoint;
}
