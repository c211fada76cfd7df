// The rows of kernels that are no linears. Compiled for checking (docs/gpu.md), so that every access of a kernel is seen.
#include <fmt/format.h>

#include <numeric>

#include "gpu/engine/workspace.hpp"
#include "gpu/kernels/cache_latent.cuh"
#include "gpu/kernels/combine.cuh"
#include "gpu/kernels/embed.cuh"
#include "gpu/kernels/latent_attention.cuh"
#include "gpu/kernels/quantize_rows.cuh"
#include "gpu/kernels/rms_norm.cuh"
#include "gpu/kernels/rotate.cuh"
#include "gpu/kernels/router.cuh"
#include "gpu/kernels/swiglu.cuh"
#include "tools/bench/bench_step.hpp"
#include "tools/bench/counted_launch.hpp"

namespace tools {

using namespace gpu;                // NOLINT(google-build-using-namespace): a file of kernels
using namespace gpu::DSV3_BACKEND;  // NOLINT(google-build-using-namespace)

namespace {

std::vector<int32_t> positions(const BenchStep& s) {
  std::vector<int32_t> all(static_cast<size_t>(s.num_tokens));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

KernelRow embed_row(const BenchStep& s) {
  CountedLaunch b;
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < s.num_tokens; ++t) {
    tokens.push_back(static_cast<int32_t>(t * 7 % s.config.vocab_size));
  }
  b.tensor<gpu::bf16>(s.num_tokens * s.config.hidden_size);  // the rows that are read
  embed(b.stream(),
        {.tokens = b.numbers(tokens),
         .table = b.workspace<gpu::bf16>(s.config.vocab_size * s.config.hidden_size),
         .out = b.tensor<gpu::bf16>(s.num_tokens * s.config.hidden_size),
         .num_tokens = s.num_tokens,
         .vocab = static_cast<int32_t>(s.config.vocab_size),
         .num_table_rows = static_cast<int32_t>(s.config.vocab_size),
         .hidden = static_cast<int>(s.config.hidden_size)});
  return b.finish("embed", fmt::format("{} x {}", s.num_tokens, s.config.hidden_size), {}, kOtherBar);
}
KernelRow norm_row(const BenchStep& s) {
  CountedLaunch b;
  const int64_t len = s.num_tokens * s.config.hidden_size;
  rms_norm(b.stream(),
           {.x = b.tensor<gpu::bf16>(len),
            .residual = b.tensor<gpu::bf16>(len),
            .gain = b.workspace<gpu::bf16>(s.config.hidden_size),  // among the op list's weights
            .residual_out = b.tensor<gpu::bf16>(len),
            .codes = b.tensor<fp8_e4m3>(len),
            .scales = b.tensor<float>(num_scale_blocks(s.config.hidden_size) * s.num_tokens),
            .num_tokens = s.num_tokens,
            .x_stride = s.config.hidden_size,
            .scale_stride = s.num_tokens,
            .hidden = static_cast<int>(s.config.hidden_size),
            .epsilon = 1e-6f});
  return b.finish("attn_norm",
                  fmt::format("{} x {}", s.num_tokens, s.config.hidden_size),
                  s.cost({"layer.3.attn_norm"}),
                  kOtherBar);
}
KernelRow rotate_row(const BenchStep& s) {
  CountedLaunch b;
  const int64_t rope_len = s.num_tokens * s.config.num_attention_heads * s.config.qk_rope_head_dim;
  b.tensor<gpu::bf16>(rope_len);  // what is read of q
  rotate_query(b.stream(),
               {.q = b.workspace<gpu::bf16>(s.num_tokens * s.config.num_attention_heads * s.config.qk_head_dim()),
                .cos_sin = b.tensor<float>(s.num_tokens * s.config.qk_rope_head_dim),
                .positions = b.numbers(positions(s)),
                .q_rope = b.tensor<gpu::bf16>(rope_len),
                .num_tokens = s.num_tokens,
                .num_heads = static_cast<int>(s.config.num_attention_heads),
                .nope = static_cast<int>(s.config.qk_nope_head_dim),
                .rope = static_cast<int>(s.config.qk_rope_head_dim)});
  return b.finish("attn.q_rope",
                  fmt::format("{} x {} x {}", s.num_tokens, s.config.num_attention_heads, s.config.qk_rope_head_dim),
                  {},
                  kOtherBar);
}
KernelRow cache_row(const BenchStep& s) {
  CountedLaunch b;
  std::vector<int64_t> slots;
  for (int64_t t = 0; t < s.num_tokens; ++t) {
    slots.push_back(t * kPageLen);
  }
  b.tensor<gpu::bf16>(s.num_tokens * s.config.latent_dim());  // the rows that are written
  cache_latent(b.stream(),
               {.kv_a = b.tensor<gpu::bf16>(s.num_tokens * s.config.latent_dim()),
                .gain = b.workspace<gpu::bf16>(s.config.kv_lora_rank),
                .cos_sin = b.tensor<float>(s.num_tokens * s.config.qk_rope_head_dim),
                .positions = b.numbers(positions(s)),
                .slots = b.numbers(slots),
                .cache = b.workspace<gpu::bf16>(s.num_tokens * kPageLen * s.config.latent_dim()),
                .num_tokens = s.num_tokens,
                .kv_lora = static_cast<int>(s.config.kv_lora_rank),
                .rope = static_cast<int>(s.config.qk_rope_head_dim),
                .epsilon = 1e-6f});
  return b.finish("attn.kv_a_norm+k_rope+cache",
                  fmt::format("{} x {}", s.num_tokens, s.config.latent_dim()),
                  s.cost({"layer.3.attn.kv_a_norm"}),
                  kOtherBar);
}
// Scheduler, attention and combine, in splits as the engine cuts them.
KernelRow attention_row(const BenchStep& s) {
  CountedLaunch b;
  const int64_t pages = (s.context_len + kPageLen - 1) / kPageLen;
  const int64_t rows = s.num_tokens * s.config.num_attention_heads;
  const int pages_per_split = StepLimits{}.pages_per_split;
  const int64_t splits = s.num_tokens * ((pages + pages_per_split - 1) / pages_per_split);
  std::vector<int32_t> table(static_cast<size_t>(s.num_tokens * pages));
  std::iota(table.begin(), table.end(), 0);
  std::vector<int32_t> first_token(static_cast<size_t>(s.num_tokens + 1));
  std::iota(first_token.begin(), first_token.end(), 0);
  const std::vector<int32_t> num_keys(static_cast<size_t>(s.num_tokens), static_cast<int32_t>(s.context_len));
  latent_attention(b.stream(),
                   {.q_latent = b.tensor<gpu::bf16>(rows * s.config.kv_lora_rank),
                    .q_rope = b.tensor<gpu::bf16>(rows * s.config.qk_rope_head_dim),
                    .cache = b.workspace<gpu::bf16>(s.num_tokens * pages * kPageLen * s.config.latent_dim()),
                    .block_table = b.numbers(table),
                    .num_keys = b.numbers(num_keys),
                    .first_token = b.numbers(first_token),
                    .first_split = b.workspace<int32_t>(s.num_tokens + 1),
                    .split_sequence = b.workspace<int32_t>(splits),
                    .partial_o = b.workspace<float>(splits * s.config.num_attention_heads * s.config.kv_lora_rank),
                    .partial_stats = b.workspace<float>(splits * s.config.num_attention_heads * 2),
                    .o_latent = b.tensor<gpu::bf16>(rows * s.config.kv_lora_rank),
                    .lse = b.tensor<float>(rows),
                    .num_sequences = static_cast<int>(s.num_tokens),
                    .max_pages = static_cast<int>(pages),
                    .max_splits = static_cast<int>(splits),
                    .max_new = 1,
                    .pages_per_split = pages_per_split,
                    .num_heads = static_cast<int>(s.config.num_attention_heads),
                    .kv_lora = static_cast<int>(s.config.kv_lora_rank),
                    .rope = static_cast<int>(s.config.qk_rope_head_dim),
                    .scale = 0.1f});
  auto sum = s.cost({"layer.3.attn.probs", "layer.3.attn.o_latent"});
  sum.kv_bytes = s.cost({"layer.3.attn.probs"}).kv_bytes;  // both read the same rows
  return b.finish("attn.lse+o_latent",
                  fmt::format("{} x {} x {} keys", s.num_tokens, s.config.num_attention_heads, s.context_len),
                  sum,
                  kOtherBar);
}
KernelRow quantize_row(const BenchStep& s) {
  CountedLaunch b;
  const int64_t row_len = s.config.num_attention_heads * s.config.v_head_dim;
  quantize_rows(b.stream(),
                {.x = b.tensor<gpu::bf16>(s.num_tokens * row_len),
                 .codes = b.tensor<fp8_e4m3>(s.num_tokens * row_len),
                 .scales = b.tensor<float>(num_scale_blocks(row_len) * s.num_tokens),
                 .num_rows = s.num_tokens,
                 .scale_stride = s.num_tokens,
                 .row_len = static_cast<int>(row_len)});
  return b.finish("attn.o_proj.x_fp8", fmt::format("{} x {}", s.num_tokens, row_len), {}, kOtherBar);
}
KernelRow swiglu_row(const BenchStep& s) {
  CountedLaunch b;
  const int64_t dim = s.config.intermediate_size;
  swiglu(b.stream(),
         {.gate_up = b.tensor<gpu::bf16>(s.num_tokens * 2 * dim),
          .codes = b.tensor<fp8_e4m3>(s.num_tokens * dim),
          .scales = b.tensor<float>(num_scale_blocks(dim) * s.num_tokens),
          .max_rows = s.num_tokens,
          .dim = static_cast<int>(dim)});
  return b.finish("mlp.act", fmt::format("{} x {}", s.num_tokens, dim), {}, kOtherBar);
}
KernelRow router_row(const BenchStep& s) {
  CountedLaunch b;
  const int64_t experts = s.config.n_routed_experts;
  router(b.stream(),
         {.logits = b.tensor<float>(s.num_tokens * experts),
          .bias = b.tensor<float>(experts),
          .scores = b.tensor<float>(s.num_tokens * experts),
          .group_ids = b.tensor<int32_t>(s.num_tokens * s.config.topk_group),
          .topk_ids = b.tensor<int32_t>(s.num_tokens * s.config.num_experts_per_tok),
          .topk_weights = b.tensor<float>(s.num_tokens * s.config.num_experts_per_tok),
          .num_tokens = s.num_tokens,
          .num_experts = static_cast<int>(experts),
          .num_groups = static_cast<int>(s.config.n_group),
          .kept_groups = static_cast<int>(s.config.topk_group),
          .k = static_cast<int>(s.config.num_experts_per_tok)});
  return b.finish("moe.router_scores+group_ids+topk", fmt::format("{} x {}", s.num_tokens, experts), {}, kOtherBar);
}
KernelRow combine_row(const BenchStep& s) {
  CountedLaunch b;
  const int64_t k = s.config.num_experts_per_tok;
  std::vector<int32_t> rows(static_cast<size_t>(s.num_tokens * k));
  std::iota(rows.begin(), rows.end(), 0);
  combine(b.stream(),
          {.expert_rows = b.tensor<gpu::bf16>(s.num_tokens * k * s.config.hidden_size),
           .row_of_slot = b.numbers(rows),
           .topk_ids = b.numbers(s.expert_ids),
           .topk_weights = b.tensor<float>(s.num_tokens * k),
           .shared = b.tensor<gpu::bf16>(s.num_tokens * s.config.hidden_size),
           .out = b.tensor<gpu::bf16>(s.num_tokens * s.config.hidden_size),
           .num_tokens = s.num_tokens,
           .hidden = static_cast<int>(s.config.hidden_size),
           .k = static_cast<int>(k)});
  return b.finish("moe.routed+ffn", fmt::format("{} x {} x {}", s.num_tokens, k, s.config.hidden_size), {}, kOtherBar);
}
}  // namespace tools
