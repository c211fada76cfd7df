#include "tools/synthetic/fixtures.hpp"

#include <algorithm>
#include <limits>

namespace tools::synthetic {
namespace {

constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();

// What all FP8 fixtures but edge have: a zero weight block, and one of the dense up_proj that makes a block of the activation
// zero.
const std::vector<ZeroRegion> kZeroBlocks{
    {.kind = "mlp.experts.down_proj", .expert = 0, .row_end = 128, .col_end = 128},
    {.kind = "mlp.up_proj", .layer = 0, .row_begin = 128, .row_end = 256, .col_end = kToTheEnd},
};

// What V3-like fixtures have in common.
model::ModelConfig base_config() {
  model::ModelConfig config;
  config.n_shared_experts = 1;
  config.routed_scaling_factor = 2.5;
  config.quantization = model::QuantizationConfig{};
  config.bos_token_id = 0;
  config.eos_token_ids = {1};
  return config;
}

Fixture nano() {
  auto config = base_config();
  config.vocab_size = 512;
  config.hidden_size = 256;
  config.intermediate_size = 512;
  config.moe_intermediate_size = 128;
  config.num_hidden_layers = 4;
  config.num_nextn_predict_layers = 1;
  config.first_k_dense_replace = 1;
  config.num_attention_heads = 4;
  config.q_lora_rank = 128;
  config.kv_lora_rank = 128;
  config.qk_nope_head_dim = 32;
  config.qk_rope_head_dim = 16;
  config.v_head_dim = 32;
  config.n_routed_experts = 16;
  config.num_experts_per_tok = 4;
  config.n_group = 4;
  config.topk_group = 2;
  config.max_position_embeddings = 384;
  config.rope_theta = 2000;
  config.yarn = model::YarnConfig{.factor = 6,
                                  .original_max_position_embeddings = 64,
                                  .beta_fast = 5,
                                  .beta_slow = 1,
                                  .mscale = 1,
                                  .mscale_all_dim = 1};
  return {.name = "nano", .config = config, .zeros = kZeroBlocks, .scaled_tokens = {}, .underflow = {}};
}

Fixture ragged() {
  auto config = base_config();
  config.vocab_size = 509;
  config.hidden_size = 320;
  config.intermediate_size = 576;
  config.moe_intermediate_size = 192;
  config.num_hidden_layers = 3;
  config.num_nextn_predict_layers = 1;
  config.first_k_dense_replace = 2;
  config.num_attention_heads = 6;
  config.q_lora_rank = 96;
  config.kv_lora_rank = 192;
  config.qk_nope_head_dim = 24;
  config.qk_rope_head_dim = 8;
  config.v_head_dim = 40;
  config.n_routed_experts = 12;
  config.num_experts_per_tok = 3;
  config.n_group = 3;
  config.topk_group = 2;
  config.routed_scaling_factor = 1.3;
  config.max_position_embeddings = 288;
  config.rope_theta = 500;
  config.yarn = model::YarnConfig{.factor = 9,
                                  .original_max_position_embeddings = 32,
                                  .beta_fast = 4,
                                  .beta_slow = 1,
                                  .mscale = 0.7,
                                  .mscale_all_dim = 0.7};
  return {.name = "ragged", .config = config, .zeros = kZeroBlocks, .scaled_tokens = {}, .underflow = {}};
}

// Nothing as V3 has it.
Fixture notv3() {
  auto config = base_config();
  config.vocab_size = 640;
  config.hidden_size = 256;
  config.intermediate_size = 384;
  config.moe_intermediate_size = 128;
  config.num_hidden_layers = 3;
  config.num_nextn_predict_layers = 2;
  config.first_k_dense_replace = 0;
  config.num_attention_heads = 4;
  config.kv_lora_rank = 64;
  config.qk_nope_head_dim = 16;
  config.qk_rope_head_dim = 32;
  config.v_head_dim = 16;
  config.n_routed_experts = 8;
  config.num_experts_per_tok = 2;
  config.scoring_func = model::ScoringFunction::kSoftmax;
  config.topk_method = model::TopkMethod::kGreedy;
  config.norm_topk_prob = false;
  config.routed_scaling_factor = 3.3;
  config.rms_norm_eps = 1e-3;
  config.max_position_embeddings = 256;
  config.rope_theta = 500000;
  config.yarn = model::YarnConfig{.factor = 8,
                                  .original_max_position_embeddings = 32,
                                  .beta_fast = 16,
                                  .beta_slow = 2,
                                  .mscale = 0.5,
                                  .mscale_all_dim = 1.2};
  config.quantization.reset();
  return {.name = "notv3",
          .config = config,
          .zeros = {},
          .scaled_tokens = {},
          .underflow = {},
          .latent_row_factor = 1.0 / 16};
}

// Degenerate inputs: the embedding of token 0 is zero, those of 1 and 4 are so small that rms_norm_eps and the quantiser's
// smallest scale decide, and token 2 makes the router's scores underflow. One group is kept, so half of the experts see no token.
// Expert 0 gives zero, expert 1 gets a zero activation.
Fixture edge() {
  auto config = base_config();
  config.vocab_size = 128;
  config.hidden_size = 128;
  config.intermediate_size = 128;
  config.moe_intermediate_size = 64;
  config.num_hidden_layers = 2;
  config.first_k_dense_replace = 1;
  config.num_attention_heads = 2;
  config.q_lora_rank = 64;
  config.kv_lora_rank = 32;
  config.qk_nope_head_dim = 16;
  config.qk_rope_head_dim = 8;
  config.v_head_dim = 16;
  config.n_routed_experts = 8;
  config.num_experts_per_tok = 4;
  config.n_group = 2;
  config.topk_group = 1;
  config.max_position_embeddings = 128;
  config.yarn = model::YarnConfig{.factor = 4,
                                  .original_max_position_embeddings = 32,
                                  .beta_fast = 8,
                                  .beta_slow = 1,
                                  .mscale = 0.5,
                                  .mscale_all_dim = 1.2};
  return {.name = "edge",
          .config = config,
          .zeros = {{.kind = "mlp.experts.down_proj", .expert = 0, .row_end = kToTheEnd, .col_end = kToTheEnd},
                    {.kind = "mlp.experts.up_proj", .expert = 1, .row_end = kToTheEnd, .col_end = kToTheEnd}},
          .scaled_tokens = {{.token = 0, .factor = 0}, {.token = 1, .factor = 1e-7}, {.token = 4, .factor = 1e-4}},
          .underflow = UnderflowToken{.token = 2, .channel = 64, .activation = 40, .router_weight = -40}};
}

// The published widths and router, few layers and a small vocabulary: real geometry that no test holds in memory at once.
Fixture wide() {
  auto config = model::built_in_config("deepseek-v3");
  config.vocab_size = 1024;
  config.num_hidden_layers = 2;
  config.first_k_dense_replace = 1;
  return {.name = "wide", .config = config, .zeros = kZeroBlocks, .scaled_tokens = {}, .underflow = {}};
}

// Tensor parallelism up to 8 and expert parallelism up to 16 leave its 128-blocks whole.
Fixture par() {
  auto config = base_config();
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
  config.num_experts_per_tok = 4;
  config.n_group = 4;
  config.topk_group = 2;
  config.max_position_embeddings = 1024;
  config.yarn = model::YarnConfig{.factor = 8,
                                  .original_max_position_embeddings = 128,
                                  .beta_fast = 32,
                                  .beta_slow = 1,
                                  .mscale = 1,
                                  .mscale_all_dim = 1};
  return {.name = "par", .config = config, .zeros = kZeroBlocks, .scaled_tokens = {}, .underflow = {}};
}

// The published model, whole.
Fixture full() {
  return {.name = "full",
          .config = model::built_in_config("deepseek-v3"),
          .zeros = {},
          .scaled_tokens = {},
          .underflow = {},
          .pooled = true};
}

}  // namespace

const std::vector<Fixture>& all_fixtures() {
  static const std::vector<Fixture> fixtures{nano(), ragged(), notv3(), edge(), wide(), par(), full()};
  return fixtures;
}

const Fixture* find_fixture(std::string_view name) {
  const auto& fixtures = all_fixtures();
  const auto found = std::ranges::find(fixtures, name, &Fixture::name);
  return found == fixtures.end() ? nullptr : &*found;
}

}  // namespace tools::synthetic
