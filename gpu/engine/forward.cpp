#include "gpu/engine/forward.hpp"

#include <algorithm>
#include <vector>

#include "gpu/engine/rotation.hpp"
#include "gpu/kernels/add_parts.cuh"
#include "gpu/kernels/bf16_linear.cuh"
#include "gpu/kernels/embed.cuh"
#include "gpu/kernels/fp8_linear.cuh"
#include "gpu/kernels/fp8_linear_sm90.cuh"
#include "gpu/kernels/quantize_rows.cuh"
#include "gpu/kernels/rms_norm.cuh"
#include "gpu/kernels/swiglu.cuh"

namespace gpu {

Forward::Forward(const model::ModelConfig& config,
                 const Shard& shard,
                 const Ranks& ranks,
                 const DeviceWeights& weights,
                 const Workspace& workspace,
                 const LatentCache& cache,
                 const StepLimits& limits,
                 ScaleFormat scale_format,
                 const StreamUnits& units,
                 Backend& backend,
                 Observer& observer)
    : config_(config),
      shard_(shard),
      ranks_(ranks),
      weights_(weights),
      ws_(workspace),
      cache_(cache),
      limits_(limits),
      scale_format_(scale_format),
      units_(units),
      softmax_scale_(softmax_scale(config)),
      backend_(backend),
      half_(backend.half() == model::DType::kF16 ? comm::Element::kF16 : comm::Element::kBf16),
      observer_(observer) {}

void Forward::norm(const half16* gain, bool adds_residual, bool quantizes, half16* out, int64_t rows) {
  const bool fp8 = quantizes && config_.quantization.has_value() && !shard_.sequence_parallel;
  const auto [first_row, count] = shard_.stream_rows(rows);
  const int64_t first = first_row * config_.hidden_size;
  backend_.launch(RmsNormArguments{.x = ws_.x + first,
                                   .residual = adds_residual ? ws_.residual + first : nullptr,
                                   .gain = gain,
                                   .residual_out = adds_residual ? ws_.residual + first : nullptr,
                                   .normed = out + first,
                                   .codes = fp8 ? ws_.codes : nullptr,
                                   .scales = fp8 ? ws_.scales : nullptr,
                                   .num_tokens = count,
                                   .x_stride = config_.hidden_size,
                                   .scale_stride = rows,
                                   .hidden = static_cast<int>(config_.hidden_size),
                                   .epsilon = units_.norm_epsilon,
                                   .scale_format = scale_format_});
}

void Forward::join_rows(half16* values, int64_t rows) {
  if (shard_.sequence_parallel) {
    const int64_t len = shard_.share_len(rows) * config_.hidden_size;
    ranks_.tp->all_gather(values + shard_.tp_rank * len, values, len, half_);
  }
}

// What travels has 16 bits; each rank quantises all rows for itself.
void Forward::join_normed(int64_t rows) {
  join_rows(ws_.normed, rows);
  if (shard_.sequence_parallel && config_.quantization) {
    backend_.launch(QuantizeRowsArguments{.x = ws_.normed,
                                          .codes = ws_.codes,
                                          .scales = ws_.scales,
                                          .num_rows = rows,
                                          .scale_stride = rows,
                                          .row_len = static_cast<int>(config_.hidden_size),
                                          .scale_format = scale_format_});
  }
}

void Forward::bf16_linear(const LinearWeight& weight, const half16* x, const Output& out, int64_t rows) {
  backend_.launch(Bf16LinearArguments{.x = x,
                                      .weight = weight.values,
                                      .y_f32 = out.y_f32,
                                      .y_half16 = out.y,
                                      .partial_sums = ws_.partial_sums,
                                      .arrivals = ws_.arrivals,
                                      .num_tokens = rows,
                                      .x_stride = weight.in_dim,
                                      .y_stride = weight.out_dim,
                                      .out_dim = weight.out_dim,
                                      .in_dim = weight.in_dim,
                                      .num_splits = weight.num_splits,
                                      .num_parts = weight.num_parts,
                                      .factor = out.factor});
}

// How a row is computed depends on its own sequence alone: on whether it prefills.
void Forward::linear(
    const LinearWeight& weight, const half16* x, const Output& out, int64_t rows, int64_t num_decode_rows) {
  if (!weight.is_fp8()) {
    bf16_linear(weight, x, out, rows);
    return;
  }
  const bool asks_only = rows == 0;
  const int64_t first = backend_.has_wgmma() ? std::min(rows, num_decode_rows) : rows;
  if (first > 0 || asks_only) {
    backend_.launch(Fp8LinearArguments{.x = ws_.codes,
                                       .x_scale = ws_.scales,
                                       .weight = weight.codes,
                                       .weight_scale = weight.scales,
                                       .y = out.y,
                                       .y_f32 = out.y_f32,
                                       .partial_sums = ws_.partial_sums,
                                       .arrivals = ws_.arrivals,
                                       .num_tokens = first,
                                       .x_scale_stride = rows,
                                       .out_dim = weight.out_dim,
                                       .in_dim = weight.in_dim,
                                       .num_splits = weight.num_splits,
                                       .num_parts = weight.num_parts,
                                       .factor = out.factor});
  }
  if (first < rows || (asks_only && backend_.has_wgmma())) {
    const int64_t first_y = first * weight.out_dim;
    backend_.launch(Fp8LinearSm90Arguments{.x = ws_.codes + first * weight.in_dim,
                                           .x_scale = ws_.scales + first,
                                           .weight = weight.codes,
                                           .weight_scale = weight.scales,
                                           .y = out.y != nullptr ? out.y + first_y : nullptr,
                                           .y_f32 = out.y_f32 != nullptr ? out.y_f32 + first_y : nullptr,
                                           .num_tokens = rows - first,
                                           .x_scale_stride = rows,
                                           .out_dim = weight.out_dim,
                                           .in_dim = weight.in_dim,
                                           .num_parts = weight.num_parts,
                                           .factor = out.factor});
  }
}

void Forward::shared_linear(const LinearWeight& weight, const half16* x, half16* y, int64_t rows) {
  if (!ranks_.tp) {
    linear(weight, x, {.y = y, .factor = units_.factor}, rows, num_decode_rows_);
    return;
  }
  linear(weight, x, {.y_f32 = ws_.own_sums}, rows, num_decode_rows_);
  const auto own = shard_.stream_rows(rows);
  const int64_t count = own.count * weight.out_dim;
  if (shard_.sequence_parallel) {
    std::vector<int64_t> sent;
    for (int64_t rank = 0; rank < shard_.tp; ++rank) {
      sent.push_back(shard_.share_of(rank, rows).count * weight.out_dim);
    }
    const std::vector<int64_t> received(sent.size(), count);
    ranks_.tp->all_to_all(ws_.own_sums, sent, ws_.all_sums, received, comm::Element::kF32);
  } else {
    ranks_.tp->all_gather(ws_.own_sums, ws_.all_sums, count, comm::Element::kF32);
  }
  backend_.launch(AddPartsArguments{.parts = ws_.all_sums,
                                    .sum = y + own.first * weight.out_dim,
                                    .count = count,
                                    .num_parts = static_cast<int>(shard_.tp),
                                    .factor = units_.factor});
}

// A row of a table for each index: what embed does.
void Forward::gather(const half16* from, const int32_t* rows_of, half16* to, int64_t rows) {
  backend_.launch(EmbedArguments{.tokens = rows_of,
                                 .table = from,
                                 .out = to,
                                 .num_tokens = rows,
                                 .vocab = static_cast<int32_t>(limits_.num_state_rows()),
                                 .num_table_rows = static_cast<int32_t>(limits_.num_state_rows()),
                                 .hidden = static_cast<int>(config_.hidden_size)});
}

// A rank has some rows of the table; where another has it, the row is zero, and the sum is exact.
void Forward::embed(const half16* table, int64_t rows) {
  backend_.launch(EmbedArguments{.tokens = ws_.tokens,
                                 .table = table,
                                 .out = ws_.x,
                                 .num_tokens = rows,
                                 .vocab = static_cast<int32_t>(config_.vocab_size),
                                 .first_id = static_cast<int32_t>(shard_.vocab.begin),
                                 .num_table_rows = static_cast<int32_t>(shard_.vocab.end - shard_.vocab.begin),
                                 .hidden = static_cast<int>(config_.hidden_size),
                                 .factor = units_.factor});
  if (ranks_.tp) {
    ranks_.tp->all_reduce(ws_.x, ws_.x, rows * config_.hidden_size, half_);
  }
}

// The residual stream is the pair of x and residual, and goes over as that.
void Forward::send_to_next_stage(int64_t rows) {
  const auto own = shard_.stream_rows(rows);
  for (const half16* const values : {ws_.x, ws_.residual}) {
    ranks_.pp->send(
        values + own.first * config_.hidden_size, own.count * config_.hidden_size, half_, ranks_.pp->rank() + 1);
  }
}

void Forward::receive_from_stage_before(int64_t rows) {
  const auto own = shard_.stream_rows(rows);
  for (half16* const values : {ws_.x, ws_.residual}) {
    ranks_.pp->receive(
        values + own.first * config_.hidden_size, own.count * config_.hidden_size, half_, ranks_.pp->rank() - 1);
  }
}

void Forward::run_main(const StepShape& shape) {
  const int64_t rows = shape.num_rows;
  num_decode_rows_ = shape.num_decode_rows;
  if (shard_.is_first_stage) {
    observer_.run("embed", "", [&] { embed(weights_.embedding, rows); });
    observer_.show("embed", ws_.x);
  } else {
    receive_from_stage_before(rows);
  }
  for (int64_t i = shard_.layers.begin; i < std::min(shard_.layers.end, config_.num_hidden_layers); ++i) {
    const auto index = static_cast<size_t>(i);
    run_layer({"layer." + std::to_string(i), weights_.layers[index], index, "cache." + std::to_string(i) + ".latent"},
              i > 0,
              shape);
  }
  if (!shard_.is_last_stage) {
    send_to_next_stage(rows);
    return;
  }
  half16* const states = ws_.main_state + shape.first_row * config_.hidden_size;
  observer_.run("final_norm", "", [&] { norm(weights_.final_norm, true, false, states, rows); });
  observer_.show("final_norm", states + shard_.stream_rows(rows).first * config_.hidden_size);
  join_rows(states, rows);
  run_head("logits", states, weights_.head, shape);
}

void Forward::run_mtp(int64_t k, const half16* states, const StepShape& shape) {
  if (!shard_.is_last_stage) {
    return;
  }
  const int64_t rows = shape.num_rows;
  num_decode_rows_ = shape.num_decode_rows;
  const int64_t hidden = config_.hidden_size;
  const MtpWeights& mtp = weights_.mtp[static_cast<size_t>(k)];
  const std::string name = "mtp." + std::to_string(k);
  const auto norm_half = [&](const half16* from, const half16* gain, float epsilon, half16* to) {
    backend_.launch(RmsNormArguments{.x = from,
                                     .gain = gain,
                                     .normed = to,
                                     .num_tokens = rows,
                                     .x_stride = hidden,
                                     .normed_stride = 2 * hidden,
                                     .hidden = static_cast<int>(hidden),
                                     .epsilon = epsilon});
  };
  observer_.run(name.c_str(), ".embed", [&] { embed(mtp.embedding, rows); });
  observer_.show(name + ".embed", ws_.x);
  observer_.run(name.c_str(), ".enorm", [&] { norm_half(ws_.x, mtp.enorm, units_.norm_epsilon, ws_.normed); });
  observer_.show(name + ".enorm", ws_.normed, 2 * hidden);
  observer_.run(name.c_str(), ".hnorm", [&] {
    gather(states, ws_.state_rows, ws_.gathered, rows);
    norm_half(ws_.gathered, mtp.hnorm, static_cast<float>(config_.rms_norm_eps), ws_.normed + hidden);
  });
  observer_.show(name + ".hnorm", ws_.normed + hidden, 2 * hidden);
  observer_.run(name.c_str(), ".eh_proj", [&] {
    bf16_linear(mtp.eh_proj, ws_.normed, {.y = ws_.x, .factor = units_.factor}, rows);
  });
  observer_.show(name + ".eh_proj", ws_.x);
  const auto index = static_cast<size_t>(config_.num_hidden_layers + k);
  run_layer({name + ".layer", mtp.layer, index, "cache." + std::to_string(index) + ".latent"}, false, shape);
  observer_.run(name.c_str(), ".norm", [&] { norm(mtp.norm, true, false, ws_.mtp_state, rows); });
  observer_.show(name + ".norm", ws_.mtp_state + shard_.stream_rows(rows).first * hidden);
  join_rows(ws_.mtp_state, rows);
  run_head(name + ".logits", ws_.mtp_state, mtp.head, shape);
}

void Forward::run_head(const std::string& id, const half16* states, const LinearWeight& head, const StepShape& shape) {
  if (shape.num_head_rows == 0) {
    return;
  }
  float* const logits = ws_.logits + shape.first_head_row * config_.vocab_size;
  observer_.run(id.c_str(), "", [&] {
    gather(states, ws_.head_rows, ws_.gathered, shape.num_head_rows);
    bf16_linear(head, ws_.gathered, {.y_f32 = ranks_.tp ? ws_.own_logits : logits}, shape.num_head_rows);
    if (ranks_.tp) {
      join_logits(logits, shape.num_head_rows);
    }
  });
  if (shape.num_head_rows == shape.num_rows) {
    observer_.show(id, logits);
  }
}

void Forward::join_logits(float* logits, int64_t rows) {
  const int64_t len = shard_.vocab.end - shard_.vocab.begin;
  ranks_.tp->all_gather(ws_.own_logits, ws_.all_logits, rows * len, comm::Element::kF32);
  for (int64_t rank = 0; rank < shard_.tp; ++rank) {
    for (int64_t row = 0; row < rows; ++row) {
      backend_.copy(logits + row * config_.vocab_size + rank * len,
                    ws_.all_logits + (rank * rows + row) * len,
                    len * int64_t{sizeof(float)});
    }
  }
}

// The layer's input is x, plus the residual behind the first layer. Leaves its output likewise: x is ffn, residual the sum before it.
void Forward::run_layer(const Layer& layer, bool has_residual, const StepShape& shape) {
  const int64_t rows = shape.num_rows;
  const int64_t hidden = config_.hidden_size;
  const std::string& name = layer.name;
  const auto own = shard_.stream_rows(rows);
  const int64_t first = own.first * hidden;
  observer_.run(name.c_str(), ".attn_norm", [&] {
    norm(layer.weights.attn_norm, has_residual, true, ws_.normed, rows);
    if (!has_residual) {
      backend_.copy(ws_.residual, ws_.x, rows * hidden * int64_t{sizeof(half16)});
    }
  });
  observer_.show(name + ".attn_norm", ws_.normed + first);
  join_normed(rows);

  run_query(layer, rows);
  write_cache(layer, rows);
  run_absorbed(layer, shape);
  run_expanded(layer, shape);
  run_output(layer, rows);

  observer_.run(name.c_str(), ".ffn_norm", [&] { norm(layer.weights.ffn_norm, true, true, ws_.normed, rows); });
  observer_.show(name + ".attn_residual", ws_.residual + first);
  observer_.show(name + ".ffn_norm", ws_.normed + first);
  join_normed(rows);
  if (layer.weights.moe) {
    run_moe(layer, rows);
  } else {
    run_mlp(name + ".mlp", *layer.weights.mlp, rows, ws_.x, name + ".ffn");
  }
  if (observer_.wants(name + ".output")) {
    observer_.show(name + ".output", observer_.sum(ws_.residual + first, ws_.x + first, own.count, hidden));
  }
}

void Forward::run_mlp(
    const std::string& name, const MlpWeights& mlp, int64_t rows, half16* out, const std::string& out_id) {
  const bool fp8 = mlp.down.is_fp8();
  observer_.run(
      name.c_str(), ".gate", [&] { linear(mlp.gate_up, ws_.normed, {.y = ws_.gate_up}, rows, num_decode_rows_); });
  observer_.show(name + ".gate", ws_.gate_up, 2 * mlp.padded_dim);
  observer_.show(name + ".up", ws_.gate_up + mlp.padded_dim, 2 * mlp.padded_dim);
  observer_.run(name.c_str(), ".act", [&] {
    backend_.launch(SwigluArguments{.gate_up = ws_.gate_up,
                                    .act = fp8 && !observer_.has_probe() ? nullptr : ws_.act,
                                    .codes = fp8 ? ws_.codes : nullptr,
                                    .scales = fp8 ? ws_.scales : nullptr,
                                    .max_rows = rows,
                                    .dim = static_cast<int>(mlp.padded_dim),
                                    .scale_format = scale_format_});
  });
  observer_.show(name + ".act", ws_.act, mlp.padded_dim);
  observer_.run(out_id.c_str(), "", [&] { shared_linear(mlp.down, ws_.act, out, rows); });
  observer_.show(out_id, out + shard_.stream_rows(rows).first * mlp.down.out_dim);
}

}  // namespace gpu
