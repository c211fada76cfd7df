// The published configs that accounting needs without a checkpoint.
#include "model/check.hpp"
#include "model/config.hpp"

namespace model {
namespace {

// Source: config.json of the DeepSeek-V3 and R1 checkpoints; configs/config_671B.json of deepseek-ai/DeepSeek-V3 agrees.
ModelConfig deepseek_v3() {
  ModelConfig config;
  config.model_type = "deepseek_v3";
  config.vocab_size = 129280;
  config.hidden_size = 7168;
  config.intermediate_size = 18432;
  config.moe_intermediate_size = 2048;
  config.num_hidden_layers = 61;
  config.num_nextn_predict_layers = 1;
  config.first_k_dense_replace = 3;
  config.num_attention_heads = 128;
  config.q_lora_rank = 1536;
  config.kv_lora_rank = 512;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  config.v_head_dim = 128;
  config.n_routed_experts = 256;
  config.n_shared_experts = 1;
  config.num_experts_per_tok = 8;
  config.n_group = 8;
  config.topk_group = 4;
  config.routed_scaling_factor = 2.5;
  config.max_position_embeddings = 163840;
  config.rope_theta = 10000;
  config.yarn = YarnConfig{.factor = 40,
                           .original_max_position_embeddings = 4096,
                           .beta_fast = 32,
                           .beta_slow = 1,
                           .mscale = 1,
                           .mscale_all_dim = 1};
  config.quantization = QuantizationConfig{};
  config.bos_token_id = 0;
  config.eos_token_ids = {1};
  return config;
}

// Source: config.json of the Kimi-K2-Instruct checkpoint of July 2025. The same class as DeepSeek-V3, other numbers, no MTP.
ModelConfig kimi_k2() {
  ModelConfig config = deepseek_v3();
  config.model_type = "kimi_k2";
  config.vocab_size = 163840;
  config.num_nextn_predict_layers = 0;
  config.first_k_dense_replace = 1;
  config.num_attention_heads = 64;
  config.n_routed_experts = 384;
  config.n_group = 1;
  config.topk_group = 1;
  config.routed_scaling_factor = 2.827;
  config.max_position_embeddings = 131072;
  config.rope_theta = 50000;
  config.yarn->factor = 32;
  config.yarn->beta_fast = 1;
  config.bos_token_id = 163584;
  config.eos_token_ids = {163585};
  return config;
}

}  // namespace

ModelConfig built_in_config(std::string_view name) {
  if (name == "deepseek-v3") {
    return deepseek_v3();
  }
  if (name == "kimi-k2") {
    return kimi_k2();
  }
  throw_input_error("no built-in config \"{}\", expected deepseek-v3 or kimi-k2", name);
}

}  // namespace model
