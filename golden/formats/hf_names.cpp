#include "golden/formats/name_table.hpp"

namespace golden {
namespace {

// A decoder layer, under the prefixes of the main model and of the MTP model. Rotations are in half-split order.
const std::vector<NameRow> kLayerNames{
    {.foreign = ".input_layernorm", .ours = ".attn_norm"},
    {.foreign = ".self_attn.q_a_proj", .ours = ".attn.q_a"},
    {.foreign = ".self_attn.q_a_layernorm", .ours = ".attn.q_a_norm"},
    {.foreign = ".self_attn.q_b_proj", .ours = ".attn.q_b"},
    {.foreign = ".self_attn.q_proj", .ours = ".attn.q"},
    {.foreign = ".self_attn.kv_a_proj_with_mqa", .ours = ".attn.kv_a"},
    {.foreign = ".self_attn.kv_a_layernorm", .ours = ".attn.kv_a_norm"},
    {.foreign = ".self_attn.q_rot", .ours = ".attn.q_rope", .layout = Layout::kHeadsFirstHalfSplit},
    {.foreign = ".self_attn.k_rot", .ours = ".attn.k_rope", .layout = Layout::kRowsHalfSplit},
    {.foreign = ".self_attn.kv_b_proj", .ours = ".attn.kv_b"},
    {.foreign = ".self_attn.probs", .ours = ".attn.probs", .layout = Layout::kHeadsFirst},
    {.foreign = ".self_attn.o_proj.in", .ours = ".attn.context"},
    {.foreign = ".self_attn.o_proj", .ours = ".attn.o_proj"},
    {.foreign = ".self_attn", .ours = ".attn.o_proj"},

    {.foreign = ".post_attention_layernorm.in", .ours = ".attn_residual"},
    {.foreign = ".post_attention_layernorm", .ours = ".ffn_norm"},

    {.foreign = ".mlp.gate_proj", .ours = ".mlp.gate"},
    {.foreign = ".mlp.up_proj", .ours = ".mlp.up"},
    {.foreign = ".mlp.down_proj.in", .ours = ".mlp.act"},

    {.foreign = ".mlp.gate.logits", .ours = ".moe.router_logits"},
    {.foreign = ".mlp.gate.indices", .ours = ".moe.topk_ids", .layout = Layout::kIds},
    {.foreign = ".mlp.gate.weights", .ours = ".moe.topk_weights"},
    {.foreign = ".mlp.experts", .ours = ".moe.routed"},
    {.foreign = ".mlp.shared_experts.gate_proj", .ours = ".moe.shared.gate"},
    {.foreign = ".mlp.shared_experts.up_proj", .ours = ".moe.shared.up"},
    {.foreign = ".mlp.shared_experts.down_proj.in", .ours = ".moe.shared.act"},
    {.foreign = ".mlp.shared_experts", .ours = ".moe.shared"},
    {.foreign = ".mlp.shared_experts.down_proj", .ours = ".moe.shared"},

    {.foreign = ".mlp", .ours = ".ffn"},
    {.foreign = ".mlp.down_proj", .ours = ".ffn"},
    {.foreign = "", .ours = ".output"},
};

}  // namespace

const std::vector<NameRow>& hf_names() {
  static const std::vector<NameRow> table = [] {
    std::vector<NameRow> rows{
        {.foreign = "model.embed_tokens", .ours = "embed"},
        {.foreign = "model.norm", .ours = "final_norm"},
        {.foreign = "logits", .ours = "logits"},
        {.foreign = "cache.#.kv_nope",
         .ours = "cache.#.latent",
         .layout = Layout::kJoinHalfSplit,
         .second = "cache.#.k_rot"},
        {.foreign = "mtp.#.enorm", .ours = "mtp.#.enorm"},
        {.foreign = "mtp.#.hnorm", .ours = "mtp.#.hnorm"},
        {.foreign = "mtp.#.eh_proj", .ours = "mtp.#.eh_proj"},
        {.foreign = "mtp.#.post_norm", .ours = "mtp.#.norm"},
        {.foreign = "mtp.#.logits", .ours = "mtp.#.logits"},
    };
    for (NameRow row : kLayerNames) {
      const std::string foreign_suffix = row.foreign;
      const std::string our_suffix = row.ours;
      row.foreign = "model.layers.#" + foreign_suffix;
      row.ours = "layer.#" + our_suffix;
      rows.push_back(row);
      row.foreign = "mtp.#.mtp_block" + foreign_suffix;
      row.ours = "mtp.#.layer" + our_suffix;
      rows.push_back(row);
    }
    return rows;
  }();
  return table;
}

}  // namespace golden
