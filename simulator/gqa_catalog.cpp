// The tensors of a model with multi-head or grouped-query attention.
#include <fmt/format.h>

#include <utility>

#include "simulator/gqa_config.hpp"

namespace simulator {
namespace {

using model::CatalogTensor;
using model::DType;
using model::TensorRole;

class Builder {
 public:
  Builder(const GqaConfig& config, const std::optional<model::QuantizationConfig>& quantization)
      : config_(config), quantization_(quantization) {}

  // Tables and the router stay BF16 in quantised checkpoints.
  void bf16_linear(const std::string& name, int64_t out, int64_t in) {
    add(name, {out, in}, DType::kBF16, TensorRole::kBf16Linear);
  }

  void gain(const std::string& name, int64_t len) { add(name, {len}, DType::kBF16, TensorRole::kNorm); }

  void layer(int64_t layer) {
    layer_ = layer;
    prefix_ = fmt::format("model.layers.{}.", layer);
    gain("input_layernorm.weight", config_.hidden_size);
    attention();
    gain("post_attention_layernorm.weight", config_.hidden_size);
    if (config_.is_moe_layer(layer)) {
      bf16_linear("mlp.gate.weight", config_.num_experts, config_.hidden_size);
      for (expert_ = 0; expert_ < config_.num_experts; ++expert_) {
        mlp(fmt::format("mlp.experts.{}.", expert_), config_.moe_intermediate_size);
      }
      expert_ = -1;
    } else {
      mlp("mlp.", config_.intermediate_size);
    }
    layer_ = -1;
    prefix_.clear();
  }

  std::vector<CatalogTensor> take() { return std::move(tensors_); }

 private:
  void attention() {
    const int64_t query_dim = config_.num_attention_heads * config_.head_dim;
    const int64_t key_dim = config_.num_key_value_heads * config_.head_dim;
    const std::pair<const char*, int64_t> projections[]{
        {"q_proj", query_dim}, {"k_proj", key_dim}, {"v_proj", key_dim}};
    for (const auto& [name, out] : projections) {
      linear(fmt::format("self_attn.{}.weight", name), out, config_.hidden_size);
      if (config_.has_qkv_bias) {
        gain(fmt::format("self_attn.{}.bias", name), out);
      }
    }
    if (config_.has_qk_norm) {
      gain("self_attn.q_norm.weight", config_.head_dim);
      gain("self_attn.k_norm.weight", config_.head_dim);
    }
    linear("self_attn.o_proj.weight", config_.hidden_size, query_dim);
  }

  void mlp(const std::string& name, int64_t intermediate_size) {
    linear(name + "gate_proj.weight", intermediate_size, config_.hidden_size);
    linear(name + "up_proj.weight", intermediate_size, config_.hidden_size);
    linear(name + "down_proj.weight", config_.hidden_size, intermediate_size);
  }

  void linear(const std::string& name, int64_t out, int64_t in) {
    if (!quantization_) {
      add(name, {out, in}, DType::kBF16, TensorRole::kLinear);
      return;
    }
    add(name, {out, in}, DType::kF8E4M3, TensorRole::kLinear);
    tensors_.back().scale = tensors_.back().name + "_scale_inv";
    const int64_t scale_rows = (out + quantization_->block_rows - 1) / quantization_->block_rows;
    const int64_t scale_cols = (in + quantization_->block_cols - 1) / quantization_->block_cols;
    add(name + "_scale_inv", {scale_rows, scale_cols}, DType::kF32, TensorRole::kScale);
  }

  void add(const std::string& name, model::Shape shape, DType dtype, TensorRole role) {
    tensors_.push_back({.name = prefix_ + name,
                        .shape = std::move(shape),
                        .dtype = dtype,
                        .role = role,
                        .scale = "",
                        .layer = layer_,
                        .expert = expert_});
  }

  const GqaConfig& config_;
  const std::optional<model::QuantizationConfig>& quantization_;
  std::vector<CatalogTensor> tensors_;
  std::string prefix_;
  int64_t layer_ = -1;
  int64_t expert_ = -1;
};

}  // namespace

std::vector<CatalogTensor> gqa_catalog(const GqaConfig& config,
                                       const std::optional<model::QuantizationConfig>& quantization) {
  Builder builder(config, quantization);
  builder.bf16_linear("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    builder.layer(layer);
  }
  builder.gain("model.norm.weight", config.hidden_size);
  if (!config.tie_word_embeddings) {
    builder.bf16_linear("lm_head.weight", config.vocab_size, config.hidden_size);
  }
  return builder.take();
}

}  // namespace simulator
