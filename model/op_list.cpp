#include "model/op_list.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "model/check.hpp"
#include "model/list_builder.hpp"

namespace model {
namespace {

constexpr std::array kKindNames{
    std::pair{OpKind::kEmbed, "embed"},
    std::pair{OpKind::kRmsNorm, "rms_norm"},
    std::pair{OpKind::kLinear, "linear"},
    std::pair{OpKind::kRotateQuery, "rotate_query"},
    std::pair{OpKind::kRotateKey, "rotate_key"},
    std::pair{OpKind::kCacheLatent, "cache_latent"},
    std::pair{OpKind::kQueryLatent, "query_latent"},
    std::pair{OpKind::kAttentionProbs, "attention_probs"},
    std::pair{OpKind::kAttentionLse, "attention_lse"},
    std::pair{OpKind::kOutputLatent, "output_latent"},
    std::pair{OpKind::kAttentionContext, "attention_context"},
    std::pair{OpKind::kResidualAdd, "residual_add"},
    std::pair{OpKind::kRouterLogits, "router_logits"},
    std::pair{OpKind::kRouterScores, "router_scores"},
    std::pair{OpKind::kRouterGroups, "router_groups"},
    std::pair{OpKind::kRouterExperts, "router_experts"},
    std::pair{OpKind::kRouterWeights, "router_weights"},
    std::pair{OpKind::kSwiglu, "swiglu"},
    std::pair{OpKind::kCombine, "combine"},
    std::pair{OpKind::kMoeOutput, "moe_output"},
    std::pair{OpKind::kLayerOutput, "layer_output"},
    std::pair{OpKind::kMtpConcat, "mtp_concat"},
    std::pair{OpKind::kHead, "head"},
};

std::string append_embedding(ListBuilder& list,
                             const std::string& id,
                             const std::string& tokens,
                             const std::string& table) {
  list.add({.id = id,
            .kind = OpKind::kEmbed,
            .inputs = {tokens},
            .weights = {table},
            .shape = {list.num_tokens(), list.config().hidden_size}});
  list.last().weight_bytes =
      list.num_tokens() * list.config().hidden_size * dtype_bytes(DType::kBF16);  // its rows only
  return id;
}

// The query: compressed, normed and expanded again, or one projection.
std::string append_query(ListBuilder& list, const std::string& p, const std::string& w, const std::string& xn) {
  if (!list.config().q_lora_rank) {
    return list.linear(p + ".attn.q", xn, w + ".self_attn.q_proj.weight");
  }
  const auto q_a = list.linear(p + ".attn.q_a", xn, w + ".self_attn.q_a_proj.weight");
  const auto q_a_norm =
      list.norm(p + ".attn.q_a_norm", {q_a}, w + ".self_attn.q_a_layernorm.weight", *list.config().q_lora_rank);
  return list.linear(p + ".attn.q_b", q_a_norm, w + ".self_attn.q_b_proj.weight");
}

// The probabilities, and the log of their denominator for whoever asks. Costs are those of computing the scores.
void append_softmax(ListBuilder& list, const std::string& p, const Ids& inputs, int64_t flops, int64_t kv_bytes) {
  const int64_t tokens = list.num_tokens();
  const int64_t heads = list.config().num_attention_heads;
  list.add({.id = p + ".attn.probs",
            .kind = OpKind::kAttentionProbs,
            .inputs = inputs,
            .shape = {tokens, heads, list.workload().max_keys()},
            .dtype = DType::kF32,
            .flops = flops,
            .kv_bytes = kv_bytes});
  list.add({.id = p + ".attn.lse",
            .kind = OpKind::kAttentionLse,
            .inputs = inputs,
            .shape = {tokens, heads},
            .dtype = DType::kF32,
            .optional = true,
            .flops = flops,
            .kv_bytes = kv_bytes});
}

// Attention with keys and values expanded from the cached latent.
std::string append_expanded(ListBuilder& list,
                            const std::string& p,
                            const std::string& w,
                            const std::string& q,
                            const std::string& q_rope,
                            const std::string& cache) {
  const ModelConfig& c = list.config();
  const int64_t tokens = list.num_tokens();
  const int64_t heads = c.num_attention_heads;
  const int64_t keys = list.workload().num_keys();
  const int64_t pairs = list.workload().num_visible_pairs();

  const auto kv_b = list.linear(p + ".attn.kv_b", cache, w + ".self_attn.kv_b_proj.weight", keys);
  list.last().kv_bytes = keys * c.kv_lora_rank * dtype_bytes(DType::kBF16);

  append_softmax(list,
                 p,
                 {q, q_rope, kv_b, cache},
                 2 * pairs * heads * c.qk_head_dim(),
                 keys * c.qk_rope_head_dim * dtype_bytes(DType::kBF16));
  return list.add({.id = p + ".attn.context",
                   .kind = OpKind::kAttentionContext,
                   .inputs = {p + ".attn.probs", kv_b},
                   .shape = {tokens, heads * c.v_head_dim},
                   .flops = 2 * pairs * heads * c.v_head_dim});
}

// Attention on the latent itself: W_UK is absorbed into the query, W_UV into the output.
std::string append_absorbed(ListBuilder& list,
                            const std::string& p,
                            const std::string& w,
                            const std::string& q,
                            const std::string& q_rope,
                            const std::string& cache) {
  const ModelConfig& c = list.config();
  const int64_t tokens = list.num_tokens();
  const int64_t heads = c.num_attention_heads;
  const int64_t keys = list.workload().num_keys();
  const int64_t pairs = list.workload().num_visible_pairs();
  const std::string kv_b = w + ".self_attn.kv_b_proj.weight";
  // q_latent reads the rows of W_UK, context those of W_UV: together the whole matrix once.
  const int64_t uk_bytes = list.weight_bytes(kv_b) * c.qk_nope_head_dim / (c.qk_nope_head_dim + c.v_head_dim);

  list.add({.id = p + ".attn.q_latent",
            .kind = OpKind::kQueryLatent,
            .inputs = {q},
            .weights = {kv_b},
            .shape = {tokens, heads, c.kv_lora_rank},
            .flops = 2 * tokens * heads * c.qk_nope_head_dim * c.kv_lora_rank});
  list.last().weight_bytes = uk_bytes;

  append_softmax(list,
                 p,
                 {p + ".attn.q_latent", q_rope, cache},
                 2 * pairs * heads * c.latent_dim(),
                 keys * c.latent_dim() * dtype_bytes(DType::kBF16));
  list.add({.id = p + ".attn.o_latent",
            .kind = OpKind::kOutputLatent,
            .inputs = {p + ".attn.probs", cache},
            .shape = {tokens, heads, c.kv_lora_rank},
            .flops = 2 * pairs * heads * c.kv_lora_rank,
            .kv_bytes = keys * c.kv_lora_rank * dtype_bytes(DType::kBF16)});
  list.add({.id = p + ".attn.context",
            .kind = OpKind::kAttentionContext,
            .inputs = {p + ".attn.o_latent"},
            .weights = {kv_b},
            .shape = {tokens, heads * c.v_head_dim},
            .flops = 2 * tokens * heads * c.kv_lora_rank * c.v_head_dim});
  list.last().weight_bytes = list.weight_bytes(kv_b) - uk_bytes;
  return p + ".attn.context";
}

// Multi-head latent attention, from the layer input to the output projection.
std::string append_attention(
    ListBuilder& list, const std::string& p, const std::string& w, int64_t layer, const std::string& x) {
  const ModelConfig& c = list.config();
  const int64_t tokens = list.num_tokens();
  const auto xn = list.norm(p + ".attn_norm", {x}, w + ".input_layernorm.weight", c.hidden_size);
  const auto q = append_query(list, p, w, xn);
  const auto kv_a = list.linear(p + ".attn.kv_a", xn, w + ".self_attn.kv_a_proj_with_mqa.weight");
  const auto latent = list.norm(p + ".attn.kv_a_norm", {kv_a}, w + ".self_attn.kv_a_layernorm.weight", c.kv_lora_rank);
  const auto q_rope = list.add({.id = p + ".attn.q_rope",
                                .kind = OpKind::kRotateQuery,
                                .inputs = {q},
                                .shape = {tokens, c.num_attention_heads, c.qk_rope_head_dim}});
  const auto k_rope = list.add(
      {.id = p + ".attn.k_rope", .kind = OpKind::kRotateKey, .inputs = {kv_a}, .shape = {tokens, c.qk_rope_head_dim}});

  const std::string cache = "cache." + std::to_string(layer) + ".latent";
  list.add({.id = cache,
            .kind = OpKind::kCacheLatent,
            .inputs = {latent, k_rope, cache},
            .shape = {list.workload().num_keys(), c.latent_dim()}});
  list.last().activation_bytes = tokens * c.latent_dim() * dtype_bytes(DType::kBF16);
  list.last().kv_bytes = tokens * c.latent_dim() * dtype_bytes(DType::kBF16);

  const auto context = list.workload().attention_form == AttentionForm::kExpanded
                           ? append_expanded(list, p, w, q, q_rope, cache)
                           : append_absorbed(list, p, w, q, q_rope, cache);
  return list.linear(p + ".attn.o_proj", context, w + ".self_attn.o_proj.weight");
}

// gate, up -> silu(gate) * up -> down, under `output`. Serves the dense MLP and the shared expert.
std::string append_mlp(ListBuilder& list,
                       const std::string& parts,
                       const std::string& w,
                       const std::string& xn,
                       const std::string& output) {
  const auto gate = list.linear(parts + ".gate", xn, w + ".gate_proj.weight");
  const auto up = list.linear(parts + ".up", xn, w + ".up_proj.weight");
  const auto act = list.swiglu(parts + ".act", gate, up, list.weight_shape(w + ".gate_proj.weight")[0]);
  return list.linear(output, act, w + ".down_proj.weight");
}

// Which experts a token visits, and with what weight.
std::pair<std::string, std::string> append_router(ListBuilder& list,
                                                  const std::string& p,
                                                  const std::string& w,
                                                  const std::string& xn) {
  const ModelConfig& c = list.config();
  const int64_t tokens = list.num_tokens();
  const Ids bias = c.has_router_bias() ? Ids{w + ".mlp.gate.e_score_correction_bias"} : Ids{};
  const auto logits = list.add({.id = p + ".moe.router_logits",
                                .kind = OpKind::kRouterLogits,
                                .inputs = {xn},
                                .weights = {w + ".mlp.gate.weight"},
                                .shape = {tokens, c.n_routed_experts},
                                .dtype = DType::kF32,
                                .flops = 2 * tokens * c.n_routed_experts * c.hidden_size});
  const auto scores = list.add({.id = p + ".moe.router_scores",
                                .kind = OpKind::kRouterScores,
                                .inputs = {logits},
                                .shape = {tokens, c.n_routed_experts},
                                .dtype = DType::kF32});
  Ids chooses_from{scores};
  if (c.n_group > 1) {
    chooses_from.push_back(list.add({.id = p + ".moe.group_ids",
                                     .kind = OpKind::kRouterGroups,
                                     .inputs = {scores},
                                     .weights = bias,
                                     .shape = {tokens, c.topk_group},
                                     .dtype = DType::kI32}));
  }
  const auto ids = list.add({.id = p + ".moe.topk_ids",
                             .kind = OpKind::kRouterExperts,
                             .inputs = chooses_from,
                             .weights = bias,
                             .shape = {tokens, c.num_experts_per_tok},
                             .dtype = DType::kI32});
  const auto weights = list.add({.id = p + ".moe.topk_weights",
                                 .kind = OpKind::kRouterWeights,
                                 .inputs = {scores, ids},
                                 .shape = {tokens, c.num_experts_per_tok},
                                 .dtype = DType::kF32});
  return {ids, weights};
}

std::string append_moe(ListBuilder& list, const std::string& p, const std::string& w, const std::string& xn) {
  const ModelConfig& c = list.config();
  const int64_t tokens = list.num_tokens();
  const auto [ids, weights] = append_router(list, p, w, xn);

  const std::string expert = p + ".moe.expert.*";
  const std::string expert_weight = w + ".mlp.experts.*";
  const auto gate = list.expert_linear(expert + ".gate", {xn, ids}, expert_weight + ".gate_proj.weight");
  const auto up = list.expert_linear(expert + ".up", {xn, ids}, expert_weight + ".up_proj.weight");
  const auto act = list.add({.id = expert + ".act",
                             .kind = OpKind::kSwiglu,
                             .inputs = {gate, up},
                             .shape = {-1, c.moe_intermediate_size},
                             .num_parts = c.n_routed_experts});
  const auto down = list.expert_linear(expert, {act}, expert_weight + ".down_proj.weight");
  const auto routed = list.add({.id = p + ".moe.routed",
                                .kind = OpKind::kCombine,
                                .inputs = {ids, weights, down},
                                .shape = {tokens, c.hidden_size},
                                .dtype = DType::kF32});
  Ids summands{routed};
  if (c.n_shared_experts > 0) {
    summands.push_back(append_mlp(list, p + ".moe.shared", w + ".mlp.shared_experts", xn, p + ".moe.shared"));
  }
  return list.add({.id = p + ".ffn", .kind = OpKind::kMoeOutput, .inputs = summands, .shape = {tokens, c.hidden_size}});
}

// One decoder layer, pre-norm. `p` names its ops, `w` its weights.
std::string append_layer(ListBuilder& list, const std::string& p, int64_t layer, const std::string& x) {
  const ModelConfig& c = list.config();
  const std::string w = "model.layers." + std::to_string(layer);
  list.set_layer(layer);
  const Shape hidden{list.num_tokens(), c.hidden_size};

  const auto o_proj = append_attention(list, p, w, layer, x);
  const auto residual =
      list.add({.id = p + ".attn_residual", .kind = OpKind::kResidualAdd, .inputs = {o_proj, x}, .shape = hidden});
  const auto xn =
      list.norm(p + ".ffn_norm", {residual, o_proj, x}, w + ".post_attention_layernorm.weight", c.hidden_size);
  // In the published recipe the norm adds the summands itself and does not read their stored sum.
  list.last().activation_bytes -= list.num_tokens() * c.hidden_size * dtype_bytes(DType::kBF16);
  const auto ffn =
      c.is_moe_layer(layer) ? append_moe(list, p, w, xn) : append_mlp(list, p + ".mlp", w + ".mlp", xn, p + ".ffn");
  return list.add({.id = p + ".output",
                   .kind = OpKind::kLayerOutput,
                   .inputs = {residual, ffn},
                   .shape = hidden,
                   .dtype = DType::kF32});
}

std::string append_head(ListBuilder& list,
                        const std::string& id,
                        const std::string& normed,
                        const std::string& weight) {
  const ModelConfig& c = list.config();
  return list.add({.id = id,
                   .kind = OpKind::kHead,
                   .inputs = {normed},
                   .weights = {weight},
                   .shape = {list.num_tokens(), c.vocab_size},
                   .dtype = DType::kF32,
                   .flops = 2 * list.num_tokens() * c.vocab_size * c.hidden_size});
}

// MTP depth k: the next token's embedding and the state of depth k - 1, joined, through one more layer.
std::string append_mtp(ListBuilder& list, int64_t k, const std::string& state) {
  const ModelConfig& c = list.config();
  const int64_t layer = c.num_hidden_layers + k;
  const std::string p = "mtp." + std::to_string(k);
  const std::string w = "model.layers." + std::to_string(layer);
  list.set_layer(layer);
  const auto embedding = append_embedding(list, p + ".embed", p + ".tokens", w + ".embed_tokens.weight");
  const auto enorm = list.norm(p + ".enorm", {embedding}, w + ".enorm.weight", c.hidden_size);
  const auto hnorm = list.norm(p + ".hnorm", {state}, w + ".hnorm.weight", c.hidden_size);
  const auto joined = list.add({.id = p + ".eh_proj",
                                .kind = OpKind::kMtpConcat,
                                .inputs = {enorm, hnorm},
                                .weights = {w + ".eh_proj.weight"},
                                .shape = {list.num_tokens(), c.hidden_size},
                                .flops = 4 * list.num_tokens() * c.hidden_size * c.hidden_size});
  const auto output = append_layer(list, p + ".layer", layer, joined);
  const auto normed = list.norm(p + ".norm", {output}, w + ".shared_head.norm.weight", c.hidden_size);
  append_head(list, p + ".logits", normed, w + ".shared_head.head.weight");
  return normed;
}

}  // namespace

std::string_view op_kind_name(OpKind kind) {
  for (const auto& [candidate, name] : kKindNames) {
    if (candidate == kind) {
      return name;
    }
  }
  throw_check_error(__FILE__, __LINE__, "unknown op kind");
}

int64_t Workload::num_tokens() const {
  int64_t count = 0;
  for (const SequenceStep& sequence : sequences) {
    count += sequence.num_new;
  }
  return count;
}

int64_t Workload::num_keys() const {
  int64_t count = 0;
  for (const SequenceStep& sequence : sequences) {
    count += sequence.num_cached + sequence.num_new;
  }
  return count;
}

int64_t Workload::max_keys() const {
  int64_t most = 0;
  for (const SequenceStep& sequence : sequences) {
    most = std::max(most, sequence.num_cached + sequence.num_new);
  }
  return most;
}

int64_t Workload::num_visible_pairs() const {
  int64_t count = 0;
  for (const auto& [num_cached, num_new] : sequences) {
    count += num_new * num_cached + num_new * (num_new + 1) / 2;
  }
  return count;
}

std::vector<Op> op_list(const ModelConfig& config, const Workload& workload) {
  CHECK(workload.num_tokens() > 0);
  CHECK(workload.num_mtp_layers <= config.num_nextn_predict_layers);
  ListBuilder list(config, workload);
  if (workload.only_mtp_layer) {
    const int64_t k = *workload.only_mtp_layer;
    CHECK(k >= 0 && k < config.num_nextn_predict_layers);
    list.give(mtp_state_id(k), config.hidden_size);
    append_mtp(list, k, mtp_state_id(k));
    return list.take();
  }
  auto x = append_embedding(list, "embed", "tokens", "model.embed_tokens.weight");
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    x = append_layer(list, "layer." + std::to_string(layer), layer, x);
  }
  list.set_layer(-1);
  auto state = list.norm("final_norm", {x}, "model.norm.weight", config.hidden_size);
  append_head(list, "logits", state, config.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  for (int64_t k = 0; k < workload.num_mtp_layers; ++k) {
    state = append_mtp(list, k, state);
  }
  return list.take();
}

std::string mtp_state_id(int64_t k) {
  return k == 0 ? "final_norm" : "mtp." + std::to_string(k - 1) + ".norm";
}

std::string logits_id(std::optional<int64_t> k) {
  return k ? "mtp." + std::to_string(*k) + ".logits" : "logits";
}

Op expert_part(const Op& grouped, int64_t expert) {
  CHECK(grouped.num_parts > 1 && expert < grouped.num_parts);
  Op part = grouped;
  part.expert = expert;
  part.num_parts = 1;
  part.id = with_expert(part.id, expert);
  for (auto* names : {&part.inputs, &part.weights}) {
    for (std::string& name : *names) {
      if (name.find('*') != std::string::npos) {
        name = with_expert(name, expert);
      }
    }
  }
  return part;
}

}  // namespace model
