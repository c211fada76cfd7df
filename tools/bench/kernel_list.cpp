// Which rows a step has, in the order of the model.
#include "tools/bench/bench_step.hpp"
#include "tools/bench/kernel_bench.hpp"

namespace tools {
namespace {

struct ListedRow {
  std::string op;
  std::function<KernelRow(const std::string& op)> measured;
};

class RowList {
 public:
  RowList(const KernelBenchFlags& flags, KernelMeter& meter) : step_(flags, meter.vocab_size()), meter_(meter) {}

  std::vector<ListedRow> all() {
    const model::ModelConfig& config = step_.config;
    const int64_t moe_dim = config.moe_intermediate_size;
    add("embed", embed_row);
    add("attn_norm", norm_row);
    attention();
    fp8("mlp.gate+up", {"layer.0.mlp.gate", "layer.0.mlp.up"}, {2 * config.intermediate_size, config.hidden_size});
    add("mlp.act", swiglu_row);
    fp8("ffn", {"layer.0.ffn"}, {config.hidden_size, config.intermediate_size});
    half16("moe.router_logits", "layer.3.moe.router_logits", 1, {config.n_routed_experts, config.hidden_size});
    add("moe.router_scores+group_ids+topk", router_row);
    add("moe.align", align_row);
    experts("moe.expert.gate+up",
            {"layer.3.moe.expert.*.gate", "layer.3.moe.expert.*.up"},
            {2 * moe_dim, config.hidden_size},
            true);
    add("moe.expert.act", expert_swiglu_row);
    experts("moe.expert.down", {"layer.3.moe.expert.*"}, {config.hidden_size, moe_dim}, false);
    fp8("moe.shared.gate+up", {"layer.3.moe.shared.gate", "layer.3.moe.shared.up"}, {2 * moe_dim, config.hidden_size});
    fp8("moe.shared", {"layer.3.moe.shared"}, {config.hidden_size, moe_dim});
    add("moe.routed+ffn", combine_row);
    rows_.push_back({"logits", [this, &config](const std::string& op) {
                       const LinearShape shape{config.vocab_size, config.hidden_size};
                       return bf16_row(step_, meter_, op, "logits", 1, shape, step_.num_head_rows);
                     }});
    add("sampler", sampler_row);
    return std::move(rows_);
  }

 private:
  void attention() {
    const model::ModelConfig& config = step_.config;
    const int64_t heads = config.num_attention_heads;
    const int64_t latent = config.kv_lora_rank;
    const int64_t q_lora = *config.q_lora_rank;
    fp8("attn.q_a", {"layer.3.attn.q_a"}, {q_lora, config.hidden_size});
    fp8("attn.kv_a", {"layer.3.attn.kv_a"}, {config.latent_dim(), config.hidden_size});
    fp8("attn.q_b", {"layer.3.attn.q_b"}, {heads * config.qk_head_dim(), q_lora});
    add("attn.q_rope", rotate_row);
    add("attn.kv_a_norm+k_rope+cache", cache_row);
    if (step_.is_prefill()) {
      add("attn.kv_b.x", gather_row);
      fp8("attn.kv_b", {"layer.3.attn.kv_b"}, {heads * (config.qk_nope_head_dim + config.v_head_dim), latent});
      add("attn.lse+context", expanded_row);
    } else {
      half16("attn.q_latent", "layer.3.attn.q_latent", heads, {latent, config.qk_nope_head_dim});
      add("attn.lse+o_latent", absorbed_row);
      half16("attn.context", "layer.3.attn.context", heads, {config.v_head_dim, latent});
    }
    add("attn.o_proj.x_fp8", quantize_row);
    fp8("attn.o_proj", {"layer.3.attn.o_proj"}, {config.hidden_size, heads * config.v_head_dim});
  }

  void add(const std::string& op, KernelRow (*row)(const BenchStep&, KernelMeter&)) {
    rows_.push_back({op, [this, row](const std::string&) { return row(step_, meter_); }});
  }
  void fp8(const std::string& op, const std::vector<std::string>& ids, const LinearShape& shape) {
    rows_.push_back({op, [=, this](const std::string& name) { return fp8_row(step_, meter_, name, ids, shape); }});
  }
  void half16(const std::string& op, const std::string& id, int64_t batches, const LinearShape& shape) {
    rows_.push_back({op, [=, this](const std::string& name) {
                       return bf16_row(step_, meter_, name, id, batches, shape, step_.num_tokens);
                     }});
  }
  void experts(const std::string& op, const std::vector<std::string>& ids, const LinearShape& shape, bool gathers) {
    rows_.push_back(
        {op, [=, this](const std::string& name) { return expert_row(step_, meter_, name, ids, shape, gathers); }});
  }

  BenchStep step_;
  KernelMeter& meter_;
  std::vector<ListedRow> rows_;
};

}  // namespace

std::vector<KernelRow> bench_kernels(const KernelBenchFlags& flags,
                                     KernelMeter& meter,
                                     const std::function<void(const std::string&)>& starting) {
  RowList list(flags, meter);
  std::vector<KernelRow> rows;
  for (const auto& [op, measured] : list.all()) {
    if (op.find(flags.filter) != std::string::npos) {
      starting(op);
      rows.push_back(measured(op));
    }
  }
  return rows;
}

}  // namespace tools
