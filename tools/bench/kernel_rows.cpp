// The rows of kernels that are no linears.
#include <fmt/format.h>

#include <numeric>

#include "gpu/engine/workspace.hpp"
#include "gpu/kernels/align.cuh"
#include "gpu/kernels/cache_latent.cuh"
#include "gpu/kernels/combine.cuh"
#include "gpu/kernels/embed.cuh"
#include "gpu/kernels/expanded_attention.cuh"
#include "gpu/kernels/gather_latent.cuh"
#include "gpu/kernels/latent_attention.cuh"
#include "gpu/kernels/quantize_rows.cuh"
#include "gpu/kernels/rms_norm.cuh"
#include "gpu/kernels/rotate.cuh"
#include "gpu/kernels/router.cuh"
#include "gpu/kernels/sampler.cuh"
#include "gpu/kernels/swiglu.cuh"
#include "tools/bench/bench_step.hpp"
#include "tools/bench/row_launch.hpp"

namespace tools {

using namespace gpu;                // NOLINT(google-build-using-namespace): a file of kernels
using namespace gpu::DSV3_BACKEND;  // NOLINT(google-build-using-namespace)

namespace {

template <typename Number>
std::vector<Number> ascending(int64_t count) {
  std::vector<Number> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), Number{0});
  return all;
}

// Measures one launch.
template <typename Arguments>
KernelRow launched(RowLaunch& b, const Arguments& arguments) {
  return b.measure([&] { b.device().launch(arguments); });
}

}  // namespace

KernelRow embed_row(const BenchStep& s, KernelMeter& meter) {
  RowLaunch b(meter, s.row("embed", fmt::format("{} x {}", s.num_tokens, s.config.hidden_size)));
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < s.num_tokens; ++t) {
    tokens.push_back(static_cast<int32_t>(t * 7 % s.config.vocab_size));
  }
  b.moves<half16>(s.num_tokens * s.config.hidden_size);  // the rows that are read
  return launched(b,
                  EmbedArguments{.tokens = b.numbers(tokens),
                                 .table = b.workspace<half16>(s.config.vocab_size * s.config.hidden_size),
                                 .out = b.tensor<half16>(s.num_tokens * s.config.hidden_size),
                                 .num_tokens = s.num_tokens,
                                 .vocab = static_cast<int32_t>(s.config.vocab_size),
                                 .num_table_rows = static_cast<int32_t>(s.config.vocab_size),
                                 .hidden = static_cast<int>(s.config.hidden_size)});
}

KernelRow norm_row(const BenchStep& s, KernelMeter& meter) {
  RowLaunch b(meter,
              s.row("attn_norm", fmt::format("{} x {}", s.num_tokens, s.config.hidden_size), {"layer.3.attn_norm"}));
  const int64_t len = s.num_tokens * s.config.hidden_size;
  return launched(b,
                  RmsNormArguments{.x = b.tensor<half16>(len),
                                   .residual = b.tensor<half16>(len),
                                   .gain = b.workspace<half16>(s.config.hidden_size),  // among the op list's weights
                                   .residual_out = b.tensor<half16>(len),
                                   .codes = b.tensor<fp8_e4m3>(len),
                                   .scales = b.tensor<float>(num_scale_blocks(s.config.hidden_size) * s.num_tokens),
                                   .num_tokens = s.num_tokens,
                                   .x_stride = s.config.hidden_size,
                                   .scale_stride = s.num_tokens,
                                   .hidden = static_cast<int>(s.config.hidden_size),
                                   .epsilon = 1e-6f});
}

KernelRow rotate_row(const BenchStep& s, KernelMeter& meter) {
  const int64_t heads = s.config.num_attention_heads;
  const int64_t rope = s.config.qk_rope_head_dim;
  RowLaunch b(meter, s.row("attn.q_rope", fmt::format("{} x {} x {}", s.num_tokens, heads, rope)));
  b.moves<half16>(s.num_tokens * heads * rope);  // what is read of q
  return launched(b,
                  RotateQueryArguments{.q = b.workspace<half16>(s.num_tokens * heads * s.config.qk_head_dim()),
                                       .cos_sin = b.tensor<float>(s.num_tokens * rope),
                                       .positions = b.numbers(ascending<int32_t>(s.num_tokens)),
                                       .q_rope = b.tensor<half16>(s.num_tokens * heads * rope),
                                       .num_tokens = s.num_tokens,
                                       .num_heads = static_cast<int>(heads),
                                       .nope = static_cast<int>(s.config.qk_nope_head_dim),
                                       .rope = static_cast<int>(rope)});
}

KernelRow cache_row(const BenchStep& s, KernelMeter& meter) {
  RowLaunch b(meter,
              s.row("attn.kv_a_norm+k_rope+cache",
                    fmt::format("{} x {}", s.num_tokens, s.config.latent_dim()),
                    {"layer.3.attn.kv_a_norm"}));
  std::vector<int64_t> slots;  // one a page, or one sequence's
  for (int64_t t = 0; t < s.num_tokens; ++t) {
    slots.push_back(s.is_prefill() ? t : t * kPageLen);
  }
  b.moves<half16>(s.num_tokens * s.config.latent_dim());  // the rows that are written
  return launched(b,
                  CacheLatentArguments{.kv_a = b.tensor<half16>(s.num_tokens * s.config.latent_dim()),
                                       .gain = b.workspace<half16>(s.config.kv_lora_rank),
                                       .cos_sin = b.tensor<float>(s.num_tokens * s.config.qk_rope_head_dim),
                                       .positions = b.numbers(ascending<int32_t>(s.num_tokens)),
                                       .slots = b.numbers(slots),
                                       .cache = b.workspace<half16>(s.num_tokens * kPageLen * s.config.latent_dim()),
                                       .num_tokens = s.num_tokens,
                                       .kv_lora = static_cast<int>(s.config.kv_lora_rank),
                                       .rope = static_cast<int>(s.config.qk_rope_head_dim),
                                       .epsilon = 1e-6f});
}

// In splits as the engine cuts them.
KernelRow absorbed_row(const BenchStep& s, KernelMeter& meter) {
  const int64_t heads = s.config.num_attention_heads;
  const int64_t latent = s.config.kv_lora_rank;
  const int64_t pages = (s.context_len + kPageLen - 1) / kPageLen;
  const int64_t rows = s.num_tokens * heads;
  const int pages_per_split = StepLimits{}.pages_per_split;
  const int64_t splits = s.num_tokens * ((pages + pages_per_split - 1) / pages_per_split);
  KernelRow row = s.row("attn.lse+o_latent",
                        fmt::format("{} x {} x {} keys", s.num_tokens, heads, s.context_len),
                        {"layer.3.attn.probs", "layer.3.attn.o_latent"});
  row.kv_bytes = s.row("", "", {"layer.3.attn.probs"}).kv_bytes;  // both read the same rows
  RowLaunch b(meter, row);
  const std::vector<int32_t> num_keys(static_cast<size_t>(s.num_tokens), static_cast<int32_t>(s.context_len));
  return launched(
      b,
      LatentAttentionArguments{.q_latent = b.tensor<half16>(rows * latent),
                               .q_rope = b.tensor<half16>(rows * s.config.qk_rope_head_dim),
                               .cache = b.workspace<half16>(s.num_tokens * pages * kPageLen * s.config.latent_dim()),
                               .block_table = b.numbers(ascending<int32_t>(s.num_tokens * pages)),
                               .num_keys = b.numbers(num_keys),
                               .first_token = b.numbers(ascending<int32_t>(s.num_tokens + 1)),
                               .first_split = b.workspace<int32_t>(s.num_tokens + 1),
                               .split_sequence = b.workspace<int32_t>(splits),
                               .partial_o = b.workspace<float>(splits * heads * latent),
                               .partial_stats = b.workspace<float>(splits * heads * 2),
                               .o_latent = b.tensor<half16>(rows * latent),
                               .lse = b.tensor<float>(rows),
                               .num_sequences = static_cast<int>(s.num_tokens),
                               .max_pages = static_cast<int>(pages),
                               .max_splits = static_cast<int>(splits),
                               .max_new = 1,
                               .pages_per_split = pages_per_split,
                               .num_heads = static_cast<int>(heads),
                               .kv_lora = static_cast<int>(latent),
                               .rope = static_cast<int>(s.config.qk_rope_head_dim),
                               .scale = 0.1f});
}

KernelRow gather_row(const BenchStep& s, KernelMeter& meter) {
  const int64_t pages = (s.num_tokens + kPageLen - 1) / kPageLen;
  const int64_t latent = s.config.kv_lora_rank;
  RowLaunch b(meter, s.row("attn.kv_b.x", fmt::format("{} x {}", s.num_tokens, s.config.latent_dim())));
  b.moves<half16>(s.num_tokens * s.config.latent_dim());  // the rows that are read
  return launched(b,
                  GatherLatentArguments{.cache = b.workspace<half16>(pages * kPageLen * s.config.latent_dim()),
                                        .slots = b.numbers(ascending<int64_t>(s.num_tokens)),
                                        .k_rope = b.tensor<half16>(s.num_tokens * s.config.qk_rope_head_dim),
                                        .codes = b.tensor<fp8_e4m3>(s.num_tokens * latent),
                                        .scales = b.tensor<float>(num_scale_blocks(latent) * s.num_tokens),
                                        .num_rows = s.num_tokens,
                                        .scale_stride = s.num_tokens,
                                        .kv_lora = static_cast<int>(latent),
                                        .rope = static_cast<int>(s.config.qk_rope_head_dim)});
}

// One sequence, nothing cached.
KernelRow expanded_row(const BenchStep& s, KernelMeter& meter) {
  const int64_t heads = s.config.num_attention_heads;
  const int64_t nope = s.config.qk_nope_head_dim;
  const int64_t rope = s.config.qk_rope_head_dim;
  const int64_t v = s.config.v_head_dim;
  const int64_t rows = s.num_tokens * heads;
  const auto num_keys = static_cast<int32_t>(s.num_tokens);
  KernelRow row = s.row("attn.lse+context",
                        fmt::format("{} x {} x {} keys", s.num_tokens, heads, s.num_tokens),
                        {"layer.3.attn.probs", "layer.3.attn.context"});
  row.kv_bytes = 0;  // keys and values come from kv_b, not from the cache
  RowLaunch b(meter, row);
  b.moves<half16>(rows * nope);  // what is read of q
  return launched(b,
                  ExpandedAttentionArguments{.q = b.workspace<half16>(rows * s.config.qk_head_dim()),
                                             .q_rope = b.tensor<half16>(rows * rope),
                                             .kv = b.tensor<half16>(rows * (nope + v)),
                                             .k_rope = b.tensor<half16>(s.num_tokens * rope),
                                             .first_row = b.numbers<int32_t>({0, num_keys}),
                                             .first_key = b.numbers<int32_t>({0}),
                                             .num_keys = b.numbers<int32_t>({num_keys}),
                                             .first_token = b.numbers<int32_t>({0, num_keys}),
                                             .context = b.tensor<half16>(rows * v),
                                             .lse = b.tensor<float>(rows),
                                             .num_sequences = 1,
                                             .max_new = num_keys,
                                             .num_heads = static_cast<int>(heads),
                                             .nope = static_cast<int>(nope),
                                             .rope = static_cast<int>(rope),
                                             .v = static_cast<int>(v),
                                             .scale = 0.1f});
}

KernelRow quantize_row(const BenchStep& s, KernelMeter& meter) {
  const int64_t row_len = s.config.num_attention_heads * s.config.v_head_dim;
  RowLaunch b(meter, s.row("attn.o_proj.x_fp8", fmt::format("{} x {}", s.num_tokens, row_len)));
  return launched(b,
                  QuantizeRowsArguments{.x = b.tensor<half16>(s.num_tokens * row_len),
                                        .codes = b.tensor<fp8_e4m3>(s.num_tokens * row_len),
                                        .scales = b.tensor<float>(num_scale_blocks(row_len) * s.num_tokens),
                                        .num_rows = s.num_tokens,
                                        .scale_stride = s.num_tokens,
                                        .row_len = static_cast<int>(row_len)});
}

KernelRow swiglu_row(const BenchStep& s, KernelMeter& meter) {
  const int64_t dim = s.config.intermediate_size;
  RowLaunch b(meter, s.row("mlp.act", fmt::format("{} x {}", s.num_tokens, dim)));
  return launched(b,
                  SwigluArguments{.gate_up = b.tensor<half16>(s.num_tokens * 2 * dim),
                                  .codes = b.tensor<fp8_e4m3>(s.num_tokens * dim),
                                  .scales = b.tensor<float>(num_scale_blocks(dim) * s.num_tokens),
                                  .max_rows = s.num_tokens,
                                  .dim = static_cast<int>(dim)});
}

KernelRow router_row(const BenchStep& s, KernelMeter& meter) {
  const int64_t experts = s.config.n_routed_experts;
  const int64_t k = s.config.num_experts_per_tok;
  RowLaunch b(meter, s.row("moe.router_scores+group_ids+topk", fmt::format("{} x {}", s.num_tokens, experts)));
  return launched(b,
                  RouterArguments{.logits = b.tensor<float>(s.num_tokens * experts),
                                  .bias = b.tensor<float>(experts),
                                  .scores = b.tensor<float>(s.num_tokens * experts),
                                  .group_ids = b.tensor<int32_t>(s.num_tokens * s.config.topk_group),
                                  .topk_ids = b.tensor<int32_t>(s.num_tokens * k),
                                  .topk_weights = b.tensor<float>(s.num_tokens * k),
                                  .num_tokens = s.num_tokens,
                                  .num_experts = static_cast<int>(experts),
                                  .num_groups = static_cast<int>(s.config.n_group),
                                  .kept_groups = static_cast<int>(s.config.topk_group),
                                  .k = static_cast<int>(k)});
}

KernelRow align_row(const BenchStep& s, KernelMeter& meter) {
  const int64_t experts = s.config.n_routed_experts;
  const int64_t slots = s.num_tokens * s.config.num_experts_per_tok;
  KernelRow row = s.row("moe.align", fmt::format("{} rows, {} experts", slots, experts));
  row.bar = 0;  // no op of the list: of an expert's line of token_of_row it writes a few bytes and moves a sector
  RowLaunch b(meter, row);
  b.moves<int32_t>(slots);  // what is written of token_of_row
  return launched(b,
                  AlignArguments{.topk_ids = b.numbers(s.expert_ids),
                                 .token_of_row = b.workspace<int32_t>(experts * s.num_tokens),
                                 .num_valid = b.tensor<int32_t>(experts),
                                 .row_of_slot = b.tensor<int32_t>(slots),
                                 .num_tokens = s.num_tokens,
                                 .num_experts = static_cast<int>(experts),
                                 .k = static_cast<int>(s.config.num_experts_per_tok)});
}

// On as many rows of each expert as chose it.
KernelRow expert_swiglu_row(const BenchStep& s, KernelMeter& meter) {
  const int64_t experts = s.config.n_routed_experts;
  const int64_t dim = s.config.moe_intermediate_size;
  const int64_t slots = s.num_tokens * s.config.num_experts_per_tok;
  RowLaunch b(meter, s.row("moe.expert.act", fmt::format("{} rows x {}", slots, dim)));
  std::vector<int32_t> num_rows(static_cast<size_t>(experts));
  for (const int32_t id : s.expert_ids) {
    ++num_rows[static_cast<size_t>(id)];
  }
  b.moves<half16>(slots * 2 * dim);
  b.moves<fp8_e4m3>(slots * dim);
  b.moves<float>(slots * num_scale_blocks(dim));
  return launched(b,
                  SwigluArguments{.gate_up = b.workspace<half16>(experts * s.num_tokens * 2 * dim),
                                  .num_rows = b.numbers(num_rows),
                                  .codes = b.workspace<fp8_e4m3>(experts * s.num_tokens * dim),
                                  .scales = b.workspace<float>(experts * num_scale_blocks(dim) * s.num_tokens),
                                  .max_rows = s.num_tokens,
                                  .num_groups = static_cast<int>(experts),
                                  .dim = static_cast<int>(dim)});
}

KernelRow combine_row(const BenchStep& s, KernelMeter& meter) {
  const int64_t k = s.config.num_experts_per_tok;
  const int64_t hidden = s.config.hidden_size;
  RowLaunch b(meter, s.row("moe.routed+ffn", fmt::format("{} x {} x {}", s.num_tokens, k, hidden)));
  return launched(b,
                  CombineArguments{.expert_rows = b.tensor<half16>(s.num_tokens * k * hidden),
                                   .row_of_slot = b.numbers(ascending<int32_t>(s.num_tokens * k)),
                                   .topk_ids = b.numbers(s.expert_ids),
                                   .topk_weights = b.tensor<float>(s.num_tokens * k),
                                   .shared = b.tensor<half16>(s.num_tokens * hidden),
                                   .out = b.tensor<half16>(s.num_tokens * hidden),
                                   .num_tokens = s.num_tokens,
                                   .hidden = static_cast<int>(hidden),
                                   .k = static_cast<int>(k)});
}

// The largest of each row, without penalties.
KernelRow sampler_row(const BenchStep& s, KernelMeter& meter) {
  const int64_t rows = s.num_head_rows;
  const int64_t vocab = s.config.vocab_size;
  RowLaunch b(meter, s.row("sampler", fmt::format("{} x {}", rows, vocab)));
  return launched(b,
                  SamplerArguments{.logits = b.tensor<float>(rows * vocab),
                                   .rows = b.numbers(std::vector<SamplerRow>(static_cast<size_t>(rows))),
                                   .weights = b.workspace<double>(rows * vocab),
                                   .tokens = b.tensor<int32_t>(rows),
                                   .num_rows = rows,
                                   .vocab = vocab});
}

}  // namespace tools
