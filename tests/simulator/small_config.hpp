// A model whose 128-blocks stay whole under TP 2..8 and EP 2..16, small enough to plan in no time.
#pragma once

#include "model/config.hpp"

namespace simulator {

inline model::ModelConfig small_config() {
  model::ModelConfig config;
  config.vocab_size = 1024;
  config.hidden_size = 512;
  config.intermediate_size = 2048;
  config.moe_intermediate_size = 1024;
  config.num_hidden_layers = 3;
  config.num_nextn_predict_layers = 1;
  config.first_k_dense_replace = 1;
  config.num_attention_heads = 8;
  config.q_lora_rank = 256;
  config.kv_lora_rank = 256;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 128;
  config.v_head_dim = 128;
  config.n_routed_experts = 16;
  config.n_shared_experts = 1;
  config.num_experts_per_tok = 4;
  config.n_group = 4;
  config.topk_group = 2;
  config.max_position_embeddings = 4096;
  config.quantization = model::QuantizationConfig{};
  return config;
}

}  // namespace simulator
