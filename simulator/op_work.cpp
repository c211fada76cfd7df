#include "simulator/op_work.hpp"

namespace simulator {
namespace {

double real(int64_t value) {
  return static_cast<double>(value);
}

}  // namespace

OpWork gemm_work(const GemmShape& shape, int weight_bytes_each) {
  constexpr double kOutputBytes = 2;
  return {.weight_bytes = weight_bytes_each * shape.n * shape.k,
          .other_bytes = weight_bytes_each * shape.m * shape.k + kOutputBytes * shape.m * shape.n,
          .weight_flops = 2 * shape.m * shape.n * shape.k};
}

double attention_weights(const model::ModelConfig& config, double heads) {
  const double hidden = real(config.hidden_size);
  const double q_in = config.q_lora_rank ? real(*config.q_lora_rank) : hidden;
  const double whole = hidden * (real(config.q_lora_rank.value_or(0)) + real(config.latent_dim()));
  const double of_head = q_in * real(config.qk_head_dim()) +
                         real(config.kv_lora_rank) * real(config.qk_nope_head_dim + config.v_head_dim) +
                         hidden * real(config.v_head_dim);
  return whole + heads * of_head;
}

OpWork attention_work(const model::ModelConfig& config, const AttentionShape& shape) {
  const double tokens = shape.sequences * shape.new_tokens;
  const double weights = attention_weights(config, shape.heads);
  return {.weight_bytes = weights,
          .other_bytes = shape.sequences * shape.kv_len * real(config.latent_dim()) * shape.cache_bytes_each,
          .weight_flops = 2 * tokens * weights,
          .score_flops = 2 * tokens * shape.kv_len * shape.heads * real(config.latent_dim() + config.kv_lora_rank)};
}

double expert_weights(const model::ModelConfig& config) {
  return 3 * real(config.hidden_size) * real(config.moe_intermediate_size);
}

OpWork experts_work(const model::ModelConfig& config, double active, double rows, double expert_tp) {
  const double weights = expert_weights(config) / expert_tp;
  return {.weight_bytes = active * weights, .weight_flops = 2 * rows * weights};
}

OpWork prefill_scores_work(const model::ModelConfig& config, double heads, double num_cached, double new_tokens) {
  const double keys = new_tokens * (num_cached + (new_tokens + 1) / 2);
  return {.score_flops = 2 * heads * keys * real(config.qk_head_dim() + config.v_head_dim)};
}

}  // namespace simulator
