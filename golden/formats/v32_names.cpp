#include "golden/formats/name_table.hpp"

namespace golden {

// Not mapped because nothing of ours corresponds: logits_last (rows of logits),
// attn_norm.in, attn_norm.resid, norm.in and norm.resid (a layer's output under another name).
const std::vector<NameRow>& v32_names() {
  static const std::vector<NameRow> table{
      {.foreign = "embed", .ours = "embed"},
      {.foreign = "norm", .ours = "final_norm"},
      {.foreign = "logits", .ours = "logits"},

      {.foreign = "layers.#.attn_norm", .ours = "layer.#.attn_norm"},
      {.foreign = "layers.#.attn.wq_a", .ours = "layer.#.attn.q_a"},
      {.foreign = "layers.#.attn.q_norm", .ours = "layer.#.attn.q_a_norm"},
      {.foreign = "layers.#.attn.wq_b", .ours = "layer.#.attn.q_b"},
      {.foreign = "layers.#.attn.wq", .ours = "layer.#.attn.q"},
      {.foreign = "layers.#.attn.wkv_a", .ours = "layer.#.attn.kv_a"},
      {.foreign = "layers.#.attn.kv_norm", .ours = "layer.#.attn.kv_a_norm"},
      {.foreign = "layers.#.attn.q_pe_rot", .ours = "layer.#.attn.q_rope", .layout = Layout::kHeads},
      {.foreign = "layers.#.attn.k_pe_rot", .ours = "layer.#.attn.k_rope"},
      {.foreign = "layers.#.attn.wkv_b", .ours = "layer.#.attn.kv_b"},
      {.foreign = "layers.#.attn.probs", .ours = "layer.#.attn.probs", .layout = Layout::kHeads},
      {.foreign = "layers.#.attn.wo.in", .ours = "layer.#.attn.context"},
      {.foreign = "layers.#.attn.wo", .ours = "layer.#.attn.o_proj"},
      {.foreign = "layers.#.attn", .ours = "layer.#.attn.o_proj"},
      {.foreign = "cache.#.kv_cache", .ours = "cache.#.latent", .layout = Layout::kJoin, .second = "cache.#.pe_cache"},

      // The naive form of DeepSeek-V3 caches expanded keys and values.
      {.foreign = "cache.#.k_cache", .ours = "cache.#.keys", .layout = Layout::kHeads},
      {.foreign = "cache.#.v_cache", .ours = "cache.#.values", .layout = Layout::kHeads},

      {.foreign = "layers.#.residual", .ours = "layer.#.attn_residual"},
      {.foreign = "layers.#.ffn_norm.resid", .ours = "layer.#.attn_residual"},
      {.foreign = "layers.#.ffn_norm.in", .ours = "layer.#.attn_residual"},
      {.foreign = "layers.#.ffn_norm", .ours = "layer.#.ffn_norm"},

      {.foreign = "layers.#.ffn.w1", .ours = "layer.#.mlp.gate"},
      {.foreign = "layers.#.ffn.w3", .ours = "layer.#.mlp.up"},
      {.foreign = "layers.#.ffn.w2.in", .ours = "layer.#.mlp.act"},

      {.foreign = "layers.#.ffn.gate.scores", .ours = "layer.#.moe.router_scores"},
      {.foreign = "layers.#.ffn.gate.indices", .ours = "layer.#.moe.topk_ids", .layout = Layout::kIds},
      {.foreign = "layers.#.ffn.gate.weights", .ours = "layer.#.moe.topk_weights"},
      {.foreign = "layers.#.ffn.experts.#.w1", .ours = "layer.#.moe.expert.#.gate"},
      {.foreign = "layers.#.ffn.experts.#.w3", .ours = "layer.#.moe.expert.#.up"},
      {.foreign = "layers.#.ffn.experts.#.w2.in", .ours = "layer.#.moe.expert.#.act"},
      {.foreign = "layers.#.ffn.experts.#", .ours = "layer.#.moe.expert.#"},
      {.foreign = "layers.#.ffn.experts.#.w2", .ours = "layer.#.moe.expert.#"},
      {.foreign = "layers.#.ffn.shared_experts.w1", .ours = "layer.#.moe.shared.gate"},
      {.foreign = "layers.#.ffn.shared_experts.w3", .ours = "layer.#.moe.shared.up"},
      {.foreign = "layers.#.ffn.shared_experts.w2.in", .ours = "layer.#.moe.shared.act"},
      {.foreign = "layers.#.ffn.shared_experts", .ours = "layer.#.moe.shared"},
      {.foreign = "layers.#.ffn.shared_experts.w2", .ours = "layer.#.moe.shared"},

      {.foreign = "layers.#.ffn", .ours = "layer.#.ffn"},
      {.foreign = "layers.#.ffn.w2", .ours = "layer.#.ffn"},
      {.foreign = "layers.#.x", .ours = "layer.#.ffn"},
      {.foreign = "layers.#", .ours = "layer.#.output"},
      // V3.2 hands the next layer a pair and adds it there in FP32.
      {.foreign = "layers.#.x", .ours = "layer.#.output", .layout = Layout::kPairSum, .second = "layers.#.residual"},
  };
  return table;
}

}  // namespace golden
