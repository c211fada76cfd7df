#include "model/config_sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace model {
namespace {

// Keys that say nothing about the forward pass of a released model: training, serving, other classes of the library, or numbers
// that follow from other fields. num_key_value_heads is one of them, since MLA caches one latent for all heads and the
// published code never reads it.
constexpr std::initializer_list<const char*> kIrrelevantKeys = {
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "auto_map",
    "aux_loss_alpha",
    "dtype",
    "ep_size",
    "head_dim",
    "initializer_range",
    "is_decoder",
    "num_key_value_heads",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "qk_head_dim",
    "router_aux_loss_coef",
    "seq_aux",
    "torch_dtype",
    "transformers_version",
    "use_cache",
};

// Reads a string field that must be one of the names in `table` (pairs of name and value).
template <typename T>
T choice_or(JsonFields& fields,
            const std::string& key,
            T fallback,
            std::initializer_list<std::pair<const char*, T>> table) {
  if (!fields.has(key)) {
    return fallback;
  }
  const std::string text = fields.text_or(key, "");
  std::string names;
  for (const auto& [name, value] : table) {
    if (text == name) {
      return value;
    }
    names += names.empty() ? name : std::string(", ") + name;
  }
  fields.refuse(key, table.size() == 1 ? "expected " + names : "expected one of " + names);
}

bool is_v2(const ModelConfig& config) {
  return config.model_type == "deepseek_v2";
}

void append_unread(const JsonFields& fields, std::vector<std::string>& unknown_keys) {
  for (std::string& key : fields.unread_keys()) {
    unknown_keys.push_back(std::move(key));
  }
}

// A count that must be there, but may be null for none.
int64_t integer_or_null(JsonFields& fields, const std::string& key) {
  return fields.contains(key) ? fields.integer_or(key, 0, 0) : fields.integer(key, 0);
}

// The groups must leave at least as many candidates as experts are chosen, and two in each group where a group's score is the
// sum of its two best.
void read_groups(JsonFields& fields, ModelConfig& config) {
  const int64_t n_group = fields.integer_or("n_group", 1, 1);
  const bool has_topk_group = fields.has("topk_group");
  const int64_t topk_group = has_topk_group ? fields.integer("topk_group", 1) : 1;
  if (config.topk_method == TopkMethod::kGreedy) {
    return;
  }
  if (config.n_routed_experts % n_group != 0) {
    fields.fail(fmt::format("n_group {} does not divide n_routed_experts {}", n_group, config.n_routed_experts));
  }
  if (n_group > 1 && !has_topk_group) {
    fields.fail(fmt::format("topk_group is missing, but n_group is {}", n_group));
  }
  if (topk_group > n_group) {
    fields.fail(fmt::format("topk_group {} exceeds n_group {}", topk_group, n_group));
  }
  config.n_group = n_group;
  config.topk_group = topk_group;
  const int64_t group_len = config.experts_per_group();
  if (config.topk_method == TopkMethod::kNoauxTc && n_group > 1 && group_len < 2) {
    fields.fail(fmt::format(
        "n_group {} leaves {} expert a group, but noaux_tc scores a group by its two best", n_group, group_len));
  }
  if (config.num_experts_per_tok > topk_group * group_len) {
    fields.fail(fmt::format(
        "num_experts_per_tok {} exceeds the {} experts of the kept groups (topk_group {} of {} experts each)",
        config.num_experts_per_tok,
        topk_group * group_len,
        topk_group,
        group_len));
  }
}

struct Rope {
  std::optional<YarnConfig> yarn;
  std::optional<double> theta;
};

// One of the two spellings of the block: rope_scaling, or rope_parameters (which also holds rope_theta).
Rope read_rope_block(JsonFields fields, std::vector<std::string>& unknown_keys) {
  Rope rope;
  if (fields.has("rope_theta")) {
    rope.theta = fields.positive_number("rope_theta");
  }
  const std::string type = fields.text_or("type", fields.text_or("rope_type", "default"));
  if (fields.text_or("rope_type", type) != type) {
    fields.refuse("rope_type", fmt::format("expected the same as type, \"{}\"", type));
  }
  if (type == "yarn") {
    YarnConfig yarn;
    yarn.factor = fields.positive_number("factor");
    yarn.original_max_position_embeddings = fields.integer("original_max_position_embeddings", 1);
    yarn.beta_fast = fields.positive_number_or("beta_fast", yarn.beta_fast);
    yarn.beta_slow = fields.positive_number_or("beta_slow", yarn.beta_slow);
    if (yarn.beta_fast < yarn.beta_slow) {
      fields.refuse("beta_fast", fmt::format("expected at least beta_slow, {}", yarn.beta_slow));
    }
    yarn.mscale = fields.non_negative_number_or("mscale", yarn.mscale);
    yarn.mscale_all_dim = fields.non_negative_number_or("mscale_all_dim", yarn.mscale_all_dim);
    if (fields.has("attention_factor")) {
      fields.refuse("attention_factor", "expected none, because mscale and mscale_all_dim decide it");
    }
    if (!fields.boolean_or("truncate", true)) {
      fields.refuse("truncate", "expected true, because the ends of the ramp are whole numbers");
    }
    rope.yarn = yarn;
  } else if (type != "default") {
    fields.refuse(fields.has("type") ? "type" : "rope_type", "expected yarn or default");
  } else if (!fields.contains("type") && !fields.contains("rope_type") && fields.has("factor")) {
    fields.refuse("factor", "expected a rope_type (or type) beside it");
  }
  append_unread(fields, unknown_keys);
  return rope;
}

ScaleFormat read_scale_format(JsonFields& fields) {
  return choice_or(fields, "scale_fmt", ScaleFormat::kFp32, {{"ue8m0", ScaleFormat::kUe8m0}});
}

}  // namespace

void read_model_type(JsonFields& fields, ModelConfig& config) {
  config.model_type = choice_or<std::string>(fields,
                                             "model_type",
                                             config.model_type,
                                             {{"deepseek_v3", "deepseek_v3"},
                                              {"deepseek_v32", "deepseek_v32"},
                                              {"deepseek_v2", "deepseek_v2"},
                                              {"kimi_k2", "kimi_k2"}});
}

void read_shape(JsonFields& fields, ModelConfig& config) {
  config.vocab_size = fields.integer("vocab_size", 1);
  config.hidden_size = fields.integer("hidden_size", 1);
  config.intermediate_size = fields.integer("intermediate_size", 1);
  config.num_hidden_layers = fields.integer("num_hidden_layers", 1);
  config.num_nextn_predict_layers = fields.integer_or("num_nextn_predict_layers", 0, 0);
  config.num_attention_heads = fields.integer("num_attention_heads", 1);
  if (const int64_t rank = fields.integer_or("q_lora_rank", 0, 0); rank > 0) {
    config.q_lora_rank = rank;
  }
  config.kv_lora_rank = fields.integer("kv_lora_rank", 1);
  config.qk_nope_head_dim = fields.integer("qk_nope_head_dim", 1);
  config.qk_rope_head_dim = fields.integer("qk_rope_head_dim", 2);
  if (config.qk_rope_head_dim % 2 != 0) {
    fields.refuse("qk_rope_head_dim", "expected an even number, because RoPE rotates pairs");
  }
  config.v_head_dim = fields.integer("v_head_dim", 1);
  config.rms_norm_eps = fields.positive_number_or("rms_norm_eps", 1e-6);
  config.max_position_embeddings = fields.integer_or("max_position_embeddings", 4096, 1);
  config.tie_word_embeddings = fields.boolean_or("tie_word_embeddings", false);
}

// Absent keys mean what the library's class for that model_type takes them to mean.
void read_experts(JsonFields& fields, ModelConfig& config) {
  config.n_routed_experts = integer_or_null(fields, "n_routed_experts");
  if (config.n_routed_experts == 0) {
    fields.ignore({"first_k_dense_replace",
                   "moe_layer_freq",
                   "moe_intermediate_size",
                   "n_group",
                   "n_shared_experts",
                   "norm_topk_prob",
                   "num_experts_per_tok",
                   "routed_scaling_factor",
                   "scoring_func",
                   "topk_group",
                   "topk_method"});
    return;
  }
  config.moe_intermediate_size = fields.integer("moe_intermediate_size", 1);
  config.n_shared_experts = integer_or_null(fields, "n_shared_experts");
  config.num_experts_per_tok = fields.integer("num_experts_per_tok", 1);
  if (config.num_experts_per_tok > config.n_routed_experts) {
    fields.fail(fmt::format(
        "num_experts_per_tok {} exceeds n_routed_experts {}", config.num_experts_per_tok, config.n_routed_experts));
  }
  // More than num_hidden_layers is what a cut to the first layers leaves: every layer of the main model is then dense.
  config.first_k_dense_replace = fields.integer("first_k_dense_replace", 0);
  config.moe_layer_freq = fields.integer_or("moe_layer_freq", 1, 1);
  config.norm_topk_prob = fields.boolean_or("norm_topk_prob", !is_v2(config));
  config.routed_scaling_factor = fields.positive_number_or("routed_scaling_factor", is_v2(config) ? 1.0 : 2.5);
  config.scoring_func = choice_or(fields,
                                  "scoring_func",
                                  is_v2(config) ? ScoringFunction::kSoftmax : ScoringFunction::kSigmoid,
                                  {{"sigmoid", ScoringFunction::kSigmoid}, {"softmax", ScoringFunction::kSoftmax}});
  config.topk_method = choice_or(fields,
                                 "topk_method",
                                 is_v2(config) ? TopkMethod::kGreedy : TopkMethod::kNoauxTc,
                                 {{"noaux_tc", TopkMethod::kNoauxTc},
                                  {"group_limited_greedy", TopkMethod::kGroupLimitedGreedy},
                                  {"greedy", TopkMethod::kGreedy}});
  read_groups(fields, config);
}

void read_rope(JsonFields& fields, ModelConfig& config) {
  Rope rope;
  if (std::optional<JsonFields> block = fields.object("rope_scaling")) {
    rope = read_rope_block(*block, config.unknown_keys);
  }
  if (std::optional<JsonFields> block = fields.object("rope_parameters")) {
    const Rope parameters = read_rope_block(*block, config.unknown_keys);
    if (fields.has("rope_scaling") && rope.yarn != parameters.yarn) {
      fields.fail("rope_scaling and rope_parameters disagree, expected one of them or the same values");
    }
    rope = parameters;
  }
  if (fields.has("rope_theta")) {
    const double theta = fields.positive_number("rope_theta");
    if (rope.theta.value_or(theta) != theta) {
      fields.refuse("rope_theta", fmt::format("expected the same as in the other block, {}", *rope.theta));
    }
    rope.theta = theta;
  }
  config.rope_theta = rope.theta.value_or(10000);
  if (config.rope_theta <= 1) {
    fields.fail(fmt::format("rope_theta {}: expected a number above 1", config.rope_theta));
  }
  config.yarn = rope.yarn;
  if (!fields.boolean_or("rope_interleave", true)) {
    fields.refuse("rope_interleave", "expected true, because the checkpoint stores interleaved pairs");
  }
}

// scale_fmt stands in the block, or at the top as in DeepSeek's own configs.
void read_quantization(JsonFields& fields, ModelConfig& config) {
  std::optional<JsonFields> block = fields.object("quantization_config");
  if (!block) {
    return;
  }
  QuantizationConfig quantization;
  if (block->text_or("quant_method", "") != "fp8") {
    block->refuse("quant_method", "expected \"fp8\"");
  }
  choice_or(*block, "fmt", 0, {{"e4m3", 0}});
  choice_or(*block, "activation_scheme", 0, {{"dynamic", 0}});
  if (block->integers("weight_block_size", 1) != std::vector{quantization.block_rows, quantization.block_cols}) {
    block->refuse("weight_block_size", "expected [128, 128]");
  }
  if (read_scale_format(*block) == ScaleFormat::kUe8m0 || read_scale_format(fields) == ScaleFormat::kUe8m0) {
    quantization.scale_fmt = ScaleFormat::kUe8m0;
  }
  config.quantization = quantization;
  append_unread(*block, config.unknown_keys);
}

void read_tokens(JsonFields& fields, ModelConfig& config) {
  config.eos_token_ids = fields.integers("eos_token_id", 0, config.vocab_size - 1);
  if (fields.has("bos_token_id")) {
    config.bos_token_id = fields.integer("bos_token_id", 0, config.vocab_size - 1);
  }
}

// Fields that only ever have one value here, and the keys that remain.
void read_rest(JsonFields& fields, ModelConfig& config) {
  choice_or(fields, "hidden_act", 0, {{"silu", 0}});
  if (fields.boolean_or("attention_bias", false)) {
    fields.refuse("attention_bias", "expected false, because the model has no biases");
  }
  fields.ignore(kIrrelevantKeys);
  append_unread(fields, config.unknown_keys);
  std::sort(config.unknown_keys.begin(), config.unknown_keys.end());
}

}  // namespace model
