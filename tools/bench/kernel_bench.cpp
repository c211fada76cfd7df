// The list of rows, and the linears among them. Compiled for checking (docs/gpu.md), so that every access of a kernel is seen.
#include "tools/bench/kernel_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "gpu/engine/workspace.hpp"
#include "gpu/kernels/align.cuh"
#include "gpu/kernels/bf16_linear.cuh"
#include "gpu/kernels/fp8_linear.cuh"
#include "model/check.hpp"
#include "tools/bench/bench_step.hpp"
#include "tools/bench/counted_launch.hpp"

namespace tools {

using namespace gpu;                // NOLINT(google-build-using-namespace): a file of kernels
using namespace gpu::DSV3_BACKEND;  // NOLINT(google-build-using-namespace)

BenchStep::BenchStep(const KernelBenchFlags& flags)
    : config(model::built_in_config("deepseek-v3")), num_tokens(flags.num_tokens), context_len(flags.context_len) {
  config.vocab_size = 4096;
  config.num_nextn_predict_layers = 0;
  const model::SequenceStep each{context_len - 1, 1};
  ops = model::op_list(config,
                       {.sequences = std::vector<model::SequenceStep>(static_cast<size_t>(num_tokens), each),
                        .attention_form = model::AttentionForm::kAbsorbed});
  for (int64_t slot = 0; slot < num_tokens * config.num_experts_per_tok; ++slot) {
    // 37 and 256 have no common factor: the first 256 slots are all different.
    expert_ids.push_back(static_cast<int32_t>(slot * 37 % config.n_routed_experts));
  }
  num_chosen = std::min<int64_t>(static_cast<int64_t>(expert_ids.size()), config.n_routed_experts);
}

model::Op BenchStep::cost(const std::vector<std::string>& ids) const {
  model::Op sum;
  for (const auto& id : ids) {
    const auto found = std::ranges::find(ops, id, &model::Op::id);
    CHECK(found != ops.end());
    sum.flops += found->flops;
    sum.weight_bytes +=
        found->num_parts > 1 ? found->weight_bytes / found->num_parts * num_chosen : found->weight_bytes;
    sum.kv_bytes += found->kv_bytes;
  }
  return sum;
}

namespace {

class Table {
 public:
  explicit Table(const KernelBenchFlags& flags) : step_(flags), flags_(flags) {}

  std::vector<KernelRow> rows() {
    const int64_t hidden = step_.config.hidden_size;
    const int64_t heads = step_.config.num_attention_heads;
    const int64_t experts = step_.config.n_routed_experts;
    add("embed", [&] { return embed_row(step_); });
    add("attn_norm", [&] { return norm_row(step_); });
    fp8("attn.q_a", {"layer.3.attn.q_a"}, *step_.config.q_lora_rank, hidden);
    fp8("attn.kv_a", {"layer.3.attn.kv_a"}, step_.config.kv_lora_rank + step_.config.qk_rope_head_dim, hidden);
    fp8("attn.q_b", {"layer.3.attn.q_b"}, heads * step_.config.qk_head_dim(), *step_.config.q_lora_rank);
    add("attn.q_rope", [&] { return rotate_row(step_); });
    add("attn.kv_a_norm+k_rope+cache", [&] { return cache_row(step_); });
    bf16("attn.q_latent", "layer.3.attn.q_latent", step_.config.kv_lora_rank, step_.config.qk_nope_head_dim, heads);
    add("attn.lse+o_latent", [&] { return attention_row(step_); });
    bf16("attn.context", "layer.3.attn.context", step_.config.v_head_dim, step_.config.kv_lora_rank, heads);
    add("attn.o_proj.x_fp8", [&] { return quantize_row(step_); });
    fp8("attn.o_proj", {"layer.3.attn.o_proj"}, hidden, heads * step_.config.v_head_dim);
    fp8("mlp.gate+up", {"layer.0.mlp.gate", "layer.0.mlp.up"}, 2 * step_.config.intermediate_size, hidden);
    add("mlp.act", [&] { return swiglu_row(step_); });
    fp8("ffn", {"layer.0.ffn"}, hidden, step_.config.intermediate_size);
    bf16("moe.router_logits", "layer.3.moe.router_logits", experts, hidden, 1);
    add("moe.router_scores+group_ids+topk", [&] { return router_row(step_); });
    grouped("moe.expert.gate+up",
            {"layer.3.moe.expert.*.gate", "layer.3.moe.expert.*.up"},
            2 * step_.config.moe_intermediate_size,
            hidden,
            true);
    grouped("moe.expert.down", {"layer.3.moe.expert.*"}, hidden, step_.config.moe_intermediate_size, false);
    fp8("moe.shared.gate+up",
        {"layer.3.moe.shared.gate", "layer.3.moe.shared.up"},
        2 * step_.config.moe_intermediate_size,
        hidden);
    fp8("moe.shared", {"layer.3.moe.shared"}, hidden, step_.config.moe_intermediate_size);
    add("moe.routed+ffn", [&] { return combine_row(step_); });
    bf16("logits", "logits", step_.config.vocab_size, hidden, 1);
    return std::move(rows_);
  }

 private:
  void add(const std::string& op, const std::function<KernelRow()>& row) {
    if (op.find(flags_.filter) != std::string::npos) {
      rows_.push_back(row());
    }
  }
  void fp8(const std::string& op, const std::vector<std::string>& ids, int64_t out_dim, int64_t in_dim) {
    add(op, [&] {
      CountedLaunch b;
      const int64_t tiles = linear_num_tiles(step_.num_tokens, out_dim);
      const int splits = num_splits_of(out_dim, in_dim, 1);
      const Fp8LinearArguments arguments{
          .x = b.tensor<fp8_e4m3>(step_.num_tokens * in_dim),
          .x_scale = b.tensor<float>(num_scale_blocks(in_dim) * step_.num_tokens),
          .weight = b.workspace<fp8_e4m3>(out_dim * in_dim),
          .weight_scale = b.workspace<float>(num_scale_blocks(out_dim) * num_scale_blocks(in_dim)),
          .y = b.tensor<gpu::bf16>(step_.num_tokens * out_dim),
          .partial_sums = b.workspace<float>(splits * step_.num_tokens * out_dim),
          .arrivals = b.zeros(tiles),
          .num_tokens = step_.num_tokens,
          .x_scale_stride = step_.num_tokens,
          .out_dim = out_dim,
          .in_dim = in_dim,
          .num_splits = splits};
      fp8_linear(b.stream(), arguments);
      return b.finish(op, fmt::format("{} x {} x {}", step_.num_tokens, out_dim, in_dim), step_.cost(ids), kWeightBar);
    });
  }
  void bf16(const std::string& op, const std::string& id, int64_t out_dim, int64_t in_dim, int64_t batches) {
    add(op, [&] {
      CountedLaunch b;
      const int64_t tiles = linear_num_tiles(step_.num_tokens, out_dim, batches);
      const int splits = num_splits_of(out_dim, in_dim, static_cast<int>(batches));
      const bool is_wide = id == "layer.3.attn.q_latent";  // reads the nope part of wider rows
      const int64_t x_len = is_wide ? step_.config.qk_head_dim() : in_dim;
      const bool in_f32 = batches == 1;
      auto* const y = in_f32 ? reinterpret_cast<std::byte*>(b.tensor<float>(step_.num_tokens * out_dim))
                             : reinterpret_cast<std::byte*>(b.tensor<gpu::bf16>(step_.num_tokens * batches * out_dim));
      b.tensor<gpu::bf16>(step_.num_tokens * batches * in_dim);  // what is read of x
      const Bf16LinearArguments arguments{
          .x = b.workspace<gpu::bf16>(step_.num_tokens * batches * x_len),
          .weight = b.tensor<gpu::bf16>(batches * out_dim * in_dim),
          .y_f32 = in_f32 ? reinterpret_cast<float*>(y) : nullptr,
          .y_bf16 = in_f32 ? nullptr : reinterpret_cast<gpu::bf16*>(y),
          .partial_sums = b.workspace<float>(splits * batches * step_.num_tokens * out_dim),
          .arrivals = b.zeros(tiles),
          .num_tokens = step_.num_tokens,
          .x_stride = batches * x_len,
          .x_batch_stride = x_len,
          .y_stride = batches * out_dim,
          .y_batch_stride = out_dim,
          .out_dim = out_dim,
          .in_dim = in_dim,
          .num_batches = static_cast<int>(batches),
          .num_splits = splits};
      bf16_linear(b.stream(), arguments);
      model::Op flops_alone;
      flops_alone.flops = step_.cost({id}).flops;  // the weight is counted as the launch reads it: kv_b is kept in BF16
      return b.finish(
          op, fmt::format("{} x {} x {} x {}", batches, step_.num_tokens, out_dim, in_dim), flops_alone, kWeightBar);
    });
  }
  // The experts' linears, gathering or on their own rows, behind the kernel that finds their tokens.
  void grouped(
      const std::string& op, const std::vector<std::string>& ids, int64_t out_dim, int64_t in_dim, bool gathers) {
    add(op, [&] {
      CountedLaunch b;
      const int64_t experts = step_.config.n_routed_experts;
      const int64_t k = step_.config.num_experts_per_tok;
      const AlignArguments where{.topk_ids = b.with(step_.expert_ids, b.workspace<int32_t>(step_.num_tokens * k)),
                                 .token_of_row = b.workspace<int32_t>(experts * step_.num_tokens),
                                 .num_valid = b.tensor<int32_t>(experts),
                                 .row_of_slot = b.workspace<int32_t>(step_.num_tokens * k),
                                 .num_tokens = step_.num_tokens,
                                 .num_experts = static_cast<int>(experts),
                                 .k = static_cast<int>(k)};
      align(b.stream(), where);
      b.forget_counts();
      const int64_t x_rows = gathers ? step_.num_tokens : step_.num_tokens * k;  // that exist
      b.tensor<fp8_e4m3>(x_rows * in_dim);
      b.tensor<float>(x_rows * num_scale_blocks(in_dim));
      b.tensor<gpu::bf16>(step_.num_tokens * k * out_dim);
      const int64_t stored_rows = gathers ? step_.num_tokens : experts * step_.num_tokens;
      fp8_linear(b.stream(),
                 {.x = b.workspace<fp8_e4m3>(stored_rows * in_dim),
                  .x_scale = b.workspace<float>(stored_rows * num_scale_blocks(in_dim)),
                  .token_of_row = gathers ? where.token_of_row : nullptr,
                  .num_valid = where.num_valid,
                  .weight = b.workspace<fp8_e4m3>(experts * out_dim * in_dim),
                  .weight_scale = b.workspace<float>(experts * num_scale_blocks(out_dim) * num_scale_blocks(in_dim)),
                  .y = b.workspace<gpu::bf16>(experts * step_.num_tokens * out_dim),
                  .num_tokens = step_.num_tokens,
                  .x_scale_stride = step_.num_tokens,
                  .out_dim = out_dim,
                  .in_dim = in_dim,
                  .num_groups = static_cast<int>(experts)});
      return b.finish(op,
                      fmt::format("{} of {} experts, {} x {}", step_.num_chosen, step_.num_tokens * k, out_dim, in_dim),
                      step_.cost(ids),
                      kWeightBar);
    });
  }

  BenchStep step_;
  const KernelBenchFlags& flags_;
  std::vector<KernelRow> rows_;
};

}  // namespace

std::vector<KernelRow> count_kernels(const KernelBenchFlags& flags) {
  return Table(flags).rows();
}

}  // namespace tools
