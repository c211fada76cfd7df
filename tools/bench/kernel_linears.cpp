// The rows of linears, with K split as the engine splits it.
#include <fmt/format.h>

#include "gpu/engine/workspace.hpp"
#include "gpu/kernels/align.cuh"
#include "gpu/kernels/bf16_linear.cuh"
#include "gpu/kernels/fp8_linear.cuh"
#include "model/dtype.hpp"
#include "tools/bench/bench_step.hpp"
#include "tools/bench/row_launch.hpp"

namespace tools {

using namespace gpu;                // NOLINT(google-build-using-namespace): a file of kernels
using namespace gpu::DSV3_BACKEND;  // NOLINT(google-build-using-namespace)

namespace {

std::string fp8_name() {
  return std::string(model::dtype_name(model::DType::kF8E4M3));
}

}  // namespace

KernelRow fp8_row(const BenchStep& s,
                  KernelMeter& meter,
                  const std::string& op,
                  const std::vector<std::string>& ids,
                  const LinearShape& shape) {
  KernelRow row = s.row(op, fmt::format("{} x {} x {}", s.num_tokens, shape.out_dim, shape.in_dim), ids);
  row.dtype = fp8_name();
  row.bar = s.weight_bar();
  RowLaunch b(meter, row);
  const int splits = num_splits_of(shape.out_dim, shape.in_dim, 1);
  const Fp8LinearArguments arguments{
      .x = b.tensor<fp8_e4m3>(s.num_tokens * shape.in_dim),
      .x_scale = b.tensor<float>(num_scale_blocks(shape.in_dim) * s.num_tokens),
      .weight = b.workspace<fp8_e4m3>(shape.out_dim * shape.in_dim),
      .weight_scale = b.workspace<float>(num_scale_blocks(shape.out_dim) * num_scale_blocks(shape.in_dim)),
      .y = b.tensor<half16>(s.num_tokens * shape.out_dim),
      .partial_sums = b.workspace<float>(splits * s.num_tokens * shape.out_dim),
      .arrivals = b.zeros(linear_num_tiles(s.num_tokens, shape.out_dim)),
      .num_tokens = s.num_tokens,
      .x_scale_stride = s.num_tokens,
      .out_dim = shape.out_dim,
      .in_dim = shape.in_dim,
      .num_splits = splits};
  return b.measure([&] { b.device().launch(arguments); });
}

KernelRow bf16_row(const BenchStep& s,
                   KernelMeter& meter,
                   const std::string& op,
                   const std::string& id,
                   int64_t batches,
                   const LinearShape& shape,
                   int64_t num_rows) {
  KernelRow row = s.row(op, fmt::format("{} x {} x {} x {}", batches, num_rows, shape.out_dim, shape.in_dim), {id});
  row.bar = s.weight_bar();
  row.weight_bytes = 2 * batches * shape.out_dim * shape.in_dim;  // as the launch reads it: kv_b is kept in BF16
  RowLaunch b(meter, row);
  const int splits = num_splits_of(shape.out_dim, shape.in_dim, static_cast<int>(batches));
  const bool is_wide = id == "layer.3.attn.q_latent";  // reads the nope part of wider rows
  const int64_t x_len = is_wide ? s.config.qk_head_dim() : shape.in_dim;
  const bool in_f32 = batches == 1;
  const int64_t y_len = num_rows * batches * shape.out_dim;
  b.moves<half16>(num_rows * batches * shape.in_dim);
  const Bf16LinearArguments arguments{.x = b.workspace<half16>(num_rows * batches * x_len),
                                      .weight = b.workspace<half16>(batches * shape.out_dim * shape.in_dim),
                                      .y_f32 = in_f32 ? b.tensor<float>(y_len) : nullptr,
                                      .y_half16 = in_f32 ? nullptr : b.tensor<half16>(y_len),
                                      .partial_sums = b.workspace<float>(splits * y_len),
                                      .arrivals = b.zeros(linear_num_tiles(num_rows, shape.out_dim, batches)),
                                      .num_tokens = num_rows,
                                      .x_stride = batches * x_len,
                                      .x_batch_stride = x_len,
                                      .y_stride = batches * shape.out_dim,
                                      .y_batch_stride = shape.out_dim,
                                      .out_dim = shape.out_dim,
                                      .in_dim = shape.in_dim,
                                      .num_batches = static_cast<int>(batches),
                                      .num_splits = splits};
  return b.measure([&] { b.device().launch(arguments); });
}

KernelRow expert_row(const BenchStep& s,
                     KernelMeter& meter,
                     const std::string& op,
                     const std::vector<std::string>& ids,
                     const LinearShape& shape,
                     bool gathers) {
  const int64_t experts = s.config.n_routed_experts;
  const int64_t k = s.config.num_experts_per_tok;
  KernelRow row =
      s.row(op,
            fmt::format("{} rows, {} experts, {} x {}", s.num_tokens * k, s.num_chosen, shape.out_dim, shape.in_dim),
            ids);
  row.dtype = fp8_name();
  row.bar = s.weight_bar();
  RowLaunch b(meter, row);
  const AlignArguments where{.topk_ids = b.with(s.expert_ids, b.workspace<int32_t>(s.num_tokens * k)),
                             .token_of_row = b.workspace<int32_t>(experts * s.num_tokens),
                             .num_valid = b.tensor<int32_t>(experts),
                             .row_of_slot = b.workspace<int32_t>(s.num_tokens * k),
                             .num_tokens = s.num_tokens,
                             .num_experts = static_cast<int>(experts),
                             .k = static_cast<int>(k)};
  b.device().launch(where);
  const int64_t x_rows = gathers ? s.num_tokens : s.num_tokens * k;  // that exist
  b.moves<fp8_e4m3>(x_rows * shape.in_dim);
  b.moves<float>(x_rows * num_scale_blocks(shape.in_dim));
  b.moves<half16>(s.num_tokens * k * shape.out_dim);
  const int64_t stored_rows = gathers ? s.num_tokens : experts * s.num_tokens;
  const Fp8LinearArguments arguments{
      .x = b.workspace<fp8_e4m3>(stored_rows * shape.in_dim),
      .x_scale = b.workspace<float>(stored_rows * num_scale_blocks(shape.in_dim)),
      .token_of_row = gathers ? where.token_of_row : nullptr,
      .num_valid = where.num_valid,
      .weight = b.workspace<fp8_e4m3>(experts * shape.out_dim * shape.in_dim),
      .weight_scale = b.workspace<float>(experts * num_scale_blocks(shape.out_dim) * num_scale_blocks(shape.in_dim)),
      .y = b.workspace<half16>(experts * s.num_tokens * shape.out_dim),
      .num_tokens = s.num_tokens,
      .x_scale_stride = s.num_tokens,
      .out_dim = shape.out_dim,
      .in_dim = shape.in_dim,
      .num_groups = static_cast<int>(experts)};
  return b.measure([&] { b.device().launch(arguments); });
}

}  // namespace tools
