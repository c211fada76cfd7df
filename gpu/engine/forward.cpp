#include "gpu/engine/forward.hpp"

#include "gpu/engine/rotation.hpp"
#include "gpu/kernels/bf16_linear.cuh"
#include "gpu/kernels/embed.cuh"
#include "gpu/kernels/fp8_linear.cuh"
#include "gpu/kernels/rms_norm.cuh"
#include "gpu/kernels/swiglu.cuh"

namespace gpu {

Forward::Forward(const model::ModelConfig& config,
                 const DeviceWeights& weights,
                 const Workspace& workspace,
                 const LatentCache& cache,
                 const StepLimits& limits,
                 ScaleFormat scale_format,
                 Backend& backend,
                 Observer& observer)
    : config_(config),
      weights_(weights),
      ws_(workspace),
      cache_(cache),
      limits_(limits),
      scale_format_(scale_format),
      softmax_scale_(softmax_scale(config)),
      backend_(backend),
      observer_(observer) {}

void Forward::norm(const bf16* gain, bool adds_residual, bool quantizes, bf16* out, int64_t rows) {
  const bool fp8 = quantizes && config_.quantization.has_value();
  backend_.launch(RmsNormArguments{.x = ws_.x,
                                   .residual = adds_residual ? ws_.residual : nullptr,
                                   .gain = gain,
                                   .residual_out = adds_residual ? ws_.residual : nullptr,
                                   .normed = out,
                                   .codes = fp8 ? ws_.codes : nullptr,
                                   .scales = fp8 ? ws_.scales : nullptr,
                                   .num_tokens = rows,
                                   .x_stride = config_.hidden_size,
                                   .scale_stride = rows,
                                   .hidden = static_cast<int>(config_.hidden_size),
                                   .epsilon = static_cast<float>(config_.rms_norm_eps),
                                   .scale_format = scale_format_});
}

void Forward::bf16_linear(const LinearWeight& weight, const bf16* x, float* y_f32, bf16* y_bf16, int64_t rows) {
  backend_.launch(Bf16LinearArguments{.x = x,
                                      .weight = weight.values,
                                      .y_f32 = y_f32,
                                      .y_bf16 = y_bf16,
                                      .partial_sums = ws_.partial_sums,
                                      .arrivals = ws_.arrivals,
                                      .num_tokens = rows,
                                      .x_stride = weight.in_dim,
                                      .y_stride = weight.out_dim,
                                      .out_dim = weight.out_dim,
                                      .in_dim = weight.in_dim,
                                      .num_splits = num_splits_of(weight.out_dim, weight.in_dim, 1)});
}

void Forward::linear(const LinearWeight& weight, const bf16* x, bf16* y, int64_t rows) {
  if (!weight.is_fp8()) {
    bf16_linear(weight, x, nullptr, y, rows);
    return;
  }
  backend_.launch(Fp8LinearArguments{.x = ws_.codes,
                                     .x_scale = ws_.scales,
                                     .weight = weight.codes,
                                     .weight_scale = weight.scales,
                                     .y = y,
                                     .partial_sums = ws_.partial_sums,
                                     .arrivals = ws_.arrivals,
                                     .num_tokens = rows,
                                     .x_scale_stride = rows,
                                     .out_dim = weight.out_dim,
                                     .in_dim = weight.in_dim,
                                     .num_splits = num_splits_of(weight.out_dim, weight.in_dim, 1)});
}

// A row of a table for each index: what embed does.
void Forward::gather(const bf16* from, const int32_t* rows_of, bf16* to, int64_t rows) {
  backend_.launch(EmbedArguments{.tokens = rows_of,
                                 .table = from,
                                 .out = to,
                                 .num_tokens = rows,
                                 .vocab = static_cast<int32_t>(limits_.max_rows),
                                 .hidden = static_cast<int>(config_.hidden_size)});
}

void Forward::run_main(const StepShape& shape) {
  const int64_t rows = shape.num_rows;
  observer_.run("embed", "", [&] {
    backend_.launch(EmbedArguments{.tokens = ws_.tokens,
                                   .table = weights_.embedding,
                                   .out = ws_.x,
                                   .num_tokens = rows,
                                   .vocab = static_cast<int32_t>(config_.vocab_size),
                                   .hidden = static_cast<int>(config_.hidden_size)});
  });
  observer_.show("embed", ws_.x);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    run_layer(
        {"layer." + std::to_string(i), weights_.layers[i], i, "cache." + std::to_string(i) + ".latent"}, i > 0, shape);
  }
  observer_.run("final_norm", "", [&] { norm(weights_.final_norm, true, false, ws_.main_state, rows); });
  observer_.show("final_norm", ws_.main_state);
  run_head("logits", ws_.main_state, weights_.head, shape);
}

void Forward::run_mtp(int64_t k, const bf16* states, const StepShape& shape) {
  const int64_t rows = shape.num_rows;
  const int64_t hidden = config_.hidden_size;
  const MtpWeights& mtp = weights_.mtp[static_cast<size_t>(k)];
  const std::string name = "mtp." + std::to_string(k);
  const auto norm_half = [&](const bf16* from, const bf16* gain, bf16* to) {
    backend_.launch(RmsNormArguments{.x = from,
                                     .gain = gain,
                                     .normed = to,
                                     .num_tokens = rows,
                                     .x_stride = hidden,
                                     .normed_stride = 2 * hidden,
                                     .hidden = static_cast<int>(hidden),
                                     .epsilon = static_cast<float>(config_.rms_norm_eps)});
  };
  observer_.run(name.c_str(), ".embed", [&] {
    backend_.launch(EmbedArguments{.tokens = ws_.tokens,
                                   .table = mtp.embedding,
                                   .out = ws_.x,
                                   .num_tokens = rows,
                                   .vocab = static_cast<int32_t>(config_.vocab_size),
                                   .hidden = static_cast<int>(hidden)});
  });
  observer_.show(name + ".embed", ws_.x);
  observer_.run(name.c_str(), ".enorm", [&] { norm_half(ws_.x, mtp.enorm, ws_.normed); });
  observer_.show(name + ".enorm", ws_.normed, 2 * hidden);
  observer_.run(name.c_str(), ".hnorm", [&] {
    gather(states, ws_.state_rows, ws_.gathered, rows);
    norm_half(ws_.gathered, mtp.hnorm, ws_.normed + hidden);
  });
  observer_.show(name + ".hnorm", ws_.normed + hidden, 2 * hidden);
  observer_.run(name.c_str(), ".eh_proj", [&] { bf16_linear(mtp.eh_proj, ws_.normed, nullptr, ws_.x, rows); });
  observer_.show(name + ".eh_proj", ws_.x);
  const auto index = static_cast<size_t>(config_.num_hidden_layers + k);
  run_layer({name + ".layer", mtp.layer, index, "cache." + std::to_string(index) + ".latent"}, false, shape);
  observer_.run(name.c_str(), ".norm", [&] { norm(mtp.norm, true, false, ws_.mtp_state, rows); });
  observer_.show(name + ".norm", ws_.mtp_state);
  run_head(name + ".logits", ws_.mtp_state, mtp.head, shape);
}

void Forward::run_head(const std::string& id, const bf16* states, const LinearWeight& head, const StepShape& shape) {
  if (shape.num_head_rows == 0) {
    return;
  }
  observer_.run(id.c_str(), "", [&] {
    gather(states, ws_.head_rows, ws_.gathered, shape.num_head_rows);
    bf16_linear(head, ws_.gathered, ws_.logits, nullptr, shape.num_head_rows);
  });
  if (shape.num_head_rows == shape.num_rows) {
    observer_.show(id, ws_.logits);
  }
}

// The layer's input is x, plus the residual behind the first layer. Leaves its output likewise: x is ffn, residual the sum before it.
void Forward::run_layer(const Layer& layer, bool has_residual, const StepShape& shape) {
  const int64_t rows = shape.num_rows;
  const int64_t hidden = config_.hidden_size;
  const std::string& name = layer.name;
  observer_.run(name.c_str(), ".attn_norm", [&] {
    norm(layer.weights.attn_norm, has_residual, true, ws_.normed, rows);
    if (!has_residual) {
      backend_.copy(ws_.residual, ws_.x, rows * hidden * int64_t{sizeof(bf16)});
    }
  });
  observer_.show(name + ".attn_norm", ws_.normed);

  run_query(layer, rows);
  write_cache(layer, rows);
  run_absorbed(layer, shape);
  run_expanded(layer, shape);
  run_output(layer, rows);

  observer_.run(name.c_str(), ".ffn_norm", [&] { norm(layer.weights.ffn_norm, true, true, ws_.normed, rows); });
  observer_.show(name + ".attn_residual", ws_.residual);
  observer_.show(name + ".ffn_norm", ws_.normed);
  if (layer.weights.moe) {
    run_moe(layer, rows);
  } else {
    run_mlp(name + ".mlp", *layer.weights.mlp, rows, ws_.x, name + ".ffn");
  }
  if (observer_.wants(name + ".output")) {
    observer_.show(name + ".output", observer_.sum(ws_.residual, ws_.x, rows, hidden));
  }
}

void Forward::run_mlp(
    const std::string& name, const MlpWeights& mlp, int64_t rows, bf16* out, const std::string& out_id) {
  const bool fp8 = mlp.down.is_fp8();
  observer_.run(name.c_str(), ".gate", [&] { linear(mlp.gate_up, ws_.normed, ws_.gate_up, rows); });
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
  observer_.run(out_id.c_str(), "", [&] { linear(mlp.down, ws_.act, out, rows); });
  observer_.show(out_id, out);
}

}  // namespace gpu
