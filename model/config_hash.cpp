#include "model/config_hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

namespace model {

std::string config_hash(const ModelConfig& c) {
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}",
                                 c.vocab_size,
                                 c.hidden_size,
                                 c.intermediate_size,
                                 c.moe_intermediate_size,
                                 c.num_hidden_layers,
                                 c.num_nextn_predict_layers,
                                 c.first_k_dense_replace,
                                 c.moe_layer_freq,
                                 c.num_attention_heads,
                                 c.q_lora_rank.value_or(0),
                                 c.kv_lora_rank,
                                 c.qk_nope_head_dim,
                                 c.qk_rope_head_dim,
                                 c.v_head_dim,
                                 c.n_routed_experts,
                                 c.n_shared_experts,
                                 c.num_experts_per_tok,
                                 c.n_group,
                                 c.topk_group,
                                 static_cast<int>(c.scoring_func),
                                 static_cast<int>(c.topk_method),
                                 c.norm_topk_prob,
                                 c.routed_scaling_factor,
                                 c.rms_norm_eps,
                                 c.max_position_embeddings,
                                 c.rope_theta,
                                 c.tie_word_embeddings,
                                 c.quantization.has_value());
  if (c.quantization) {
    text += fmt::format(" {} {} {}",
                        c.quantization->block_rows,
                        c.quantization->block_cols,
                        static_cast<int>(c.quantization->scale_fmt));
  }
  if (c.yarn) {
    text += fmt::format(" yarn {} {} {} {} {} {}",
                        c.yarn->factor,
                        c.yarn->original_max_position_embeddings,
                        c.yarn->beta_fast,
                        c.yarn->beta_slow,
                        c.yarn->mscale,
                        c.yarn->mscale_all_dim);
  }
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace model
