#include "model/tensor_catalog.hpp"

#include <fmt/format.h>

#include <utility>

namespace model {
namespace {

// Appends tensors with the names and formats of the published checkpoints. Weights are [out, in].
class Builder {
 public:
  explicit Builder(const ModelConfig& config) : config_(config) {}

  void embedding_like(const std::string& name) {
    add(name, {config_.vocab_size, config_.hidden_size}, DType::kBF16, TensorRole::kBf16Linear);
  }

  void norm(const std::string& name, int64_t len) { add(name, {len}, DType::kBF16, TensorRole::kNorm); }

  void bf16_linear(const std::string& name, int64_t out, int64_t in) {
    add(name, {out, in}, DType::kBF16, TensorRole::kBf16Linear);
  }

  // The weight, then its scale companion when the checkpoint is quantised. A ragged last block has a scale of its own.
  void linear(const std::string& name, int64_t out, int64_t in) {
    if (!config_.quantization) {
      add(name, {out, in}, DType::kBF16, TensorRole::kLinear);
      return;
    }
    const int64_t scale_rows = (out + config_.quantization->block_rows - 1) / config_.quantization->block_rows;
    const int64_t scale_cols = (in + config_.quantization->block_cols - 1) / config_.quantization->block_cols;
    add(name, {out, in}, DType::kF8E4M3, TensorRole::kLinear);
    tensors_.back().scale = tensors_.back().name + "_scale_inv";
    add(name + "_scale_inv", {scale_rows, scale_cols}, DType::kF32, TensorRole::kScale);
  }

  void decoder_layer() {
    norm("input_layernorm.weight", config_.hidden_size);
    attention();
    norm("post_attention_layernorm.weight", config_.hidden_size);
    if (config_.is_moe_layer(layer_)) {
      moe();
    } else {
      mlp("mlp.", config_.intermediate_size);
    }
  }

  void mtp_layer() {
    embedding_like("embed_tokens.weight");
    norm("enorm.weight", config_.hidden_size);
    norm("hnorm.weight", config_.hidden_size);
    bf16_linear("eh_proj.weight", config_.hidden_size, 2 * config_.hidden_size);
    decoder_layer();
    norm("shared_head.norm.weight", config_.hidden_size);
    embedding_like("shared_head.head.weight");
  }

  // Names that follow are relative to this layer.
  void enter_layer(int64_t layer) {
    layer_ = layer;
    prefix_ = fmt::format("model.layers.{}.", layer);
  }

  void leave_layers() {
    layer_ = -1;
    prefix_.clear();
  }

  std::vector<CatalogTensor> take() { return std::move(tensors_); }

 private:
  void attention() {
    const int64_t hidden = config_.hidden_size;
    const int64_t heads = config_.num_attention_heads;
    const int64_t query_dim = heads * config_.qk_head_dim();
    if (config_.q_lora_rank) {
      linear("self_attn.q_a_proj.weight", *config_.q_lora_rank, hidden);
      norm("self_attn.q_a_layernorm.weight", *config_.q_lora_rank);
      linear("self_attn.q_b_proj.weight", query_dim, *config_.q_lora_rank);
    } else {
      linear("self_attn.q_proj.weight", query_dim, hidden);
    }
    linear("self_attn.kv_a_proj_with_mqa.weight", config_.latent_dim(), hidden);
    norm("self_attn.kv_a_layernorm.weight", config_.kv_lora_rank);
    linear("self_attn.kv_b_proj.weight", heads * (config_.qk_nope_head_dim + config_.v_head_dim), config_.kv_lora_rank);
    linear("self_attn.o_proj.weight", hidden, heads * config_.v_head_dim);
  }

  void mlp(const std::string& name, int64_t intermediate_size) {
    linear(name + "gate_proj.weight", intermediate_size, config_.hidden_size);
    linear(name + "up_proj.weight", intermediate_size, config_.hidden_size);
    linear(name + "down_proj.weight", config_.hidden_size, intermediate_size);
  }

  void moe() {
    bf16_linear("mlp.gate.weight", config_.n_routed_experts, config_.hidden_size);
    if (config_.has_router_bias()) {
      add("mlp.gate.e_score_correction_bias", {config_.n_routed_experts}, DType::kF32, TensorRole::kRouterBias);
    }
    for (expert_ = 0; expert_ < config_.n_routed_experts; ++expert_) {
      mlp(fmt::format("mlp.experts.{}.", expert_), config_.moe_intermediate_size);
    }
    expert_ = -1;
    if (config_.n_shared_experts > 0) {
      mlp("mlp.shared_experts.", config_.shared_intermediate_size());
    }
  }

  void add(const std::string& name, Shape shape, DType dtype, TensorRole role) {
    tensors_.push_back({.name = prefix_ + name,
                        .shape = std::move(shape),
                        .dtype = dtype,
                        .role = role,
                        .scale = "",
                        .layer = layer_,
                        .expert = expert_});
  }

  const ModelConfig& config_;
  std::vector<CatalogTensor> tensors_;
  std::string prefix_;
  int64_t layer_ = -1;
  int64_t expert_ = -1;
};

}  // namespace

std::vector<CatalogTensor> tensor_catalog(const ModelConfig& config) {
  Builder builder(config);
  builder.embedding_like("model.embed_tokens.weight");
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    builder.enter_layer(layer);
    builder.decoder_layer();
  }
  for (int64_t k = 0; k < config.num_nextn_predict_layers; ++k) {
    builder.enter_layer(config.num_hidden_layers + k);
    builder.mtp_layer();
  }
  builder.leave_layers();
  builder.norm("model.norm.weight", config.hidden_size);
  if (!config.tie_word_embeddings) {
    builder.embedding_like("lm_head.weight");
  }
  return builder.take();
}

}  // namespace model
