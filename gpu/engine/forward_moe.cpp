// The mixture of experts of a layer: router, the experts' grouped linears, combine.
#include "gpu/engine/forward.hpp"
#include "gpu/kernels/align.cuh"
#include "gpu/kernels/bf16_linear.cuh"
#include "gpu/kernels/combine.cuh"
#include "gpu/kernels/fp8_linear.cuh"
#include "gpu/kernels/router.cuh"
#include "gpu/kernels/swiglu.cuh"

namespace gpu {

void Forward::run_router(const Layer& layer, int64_t rows) {
  const MoeWeights& moe = *layer.weights.moe;
  const std::string name = layer.name + ".moe";
  observer_.run(name.c_str(), ".router_logits", [&] {
    bf16_linear({.out_dim = config_.n_routed_experts, .in_dim = config_.hidden_size, .values = moe.router},
                ws_.normed,
                ws_.router_logits,
                nullptr,
                rows);
  });
  observer_.show(name + ".router_logits", ws_.router_logits);
  observer_.run(name.c_str(), ".topk_ids", [&] {
    backend_.launch(RouterArguments{
        .logits = ws_.router_logits,
        .bias = moe.bias,
        .scores = ws_.router_scores,
        .group_ids = ws_.group_ids,
        .topk_ids = ws_.topk_ids,
        .topk_weights = ws_.topk_weights,
        .num_tokens = rows,
        .num_experts = static_cast<int>(config_.n_routed_experts),
        .num_groups = static_cast<int>(config_.n_group),
        .kept_groups = static_cast<int>(config_.topk_group),
        .k = static_cast<int>(config_.num_experts_per_tok),
        .scaling_factor = static_cast<float>(config_.routed_scaling_factor),
        .normalise = config_.norm_topk_prob,
        .scoring = config_.scoring_func == model::ScoringFunction::kSoftmax ? Scoring::kSoftmax : Scoring::kSigmoid,
        .group_score =
            config_.topk_method == model::TopkMethod::kNoauxTc ? GroupScore::kTopTwo : GroupScore::kLargest});
    backend_.launch(AlignArguments{.topk_ids = ws_.topk_ids,
                                   .token_of_row = ws_.token_of_row,
                                   .num_valid = ws_.num_valid,
                                   .row_of_slot = ws_.row_of_slot,
                                   .num_tokens = rows,
                                   .num_experts = static_cast<int>(config_.n_routed_experts),
                                   .k = static_cast<int>(config_.num_experts_per_tok)});
  });
  observer_.show(name + ".router_scores", ws_.router_scores);
  observer_.show(name + ".group_ids", ws_.group_ids);
  observer_.show(name + ".topk_ids", ws_.topk_ids);
  observer_.show(name + ".topk_weights", ws_.topk_weights);
}

// One expert's part of a grouped linear. gathers: row r of an expert reads the token that chose it.
void Forward::expert_linear(const LinearWeight& weight, bool gathers, bf16* y, int64_t rows) {
  const int32_t* const token_of_row = gathers ? ws_.token_of_row : nullptr;
  if (weight.is_fp8()) {
    backend_.launch(Fp8LinearArguments{.x = gathers ? ws_.codes : ws_.expert_codes,
                                       .x_scale = gathers ? ws_.scales : ws_.expert_scales,
                                       .token_of_row = token_of_row,
                                       .num_valid = ws_.num_valid,
                                       .weight = weight.codes,
                                       .weight_scale = weight.scales,
                                       .y = y,
                                       .num_tokens = rows,
                                       .x_scale_stride = rows,
                                       .out_dim = weight.out_dim,
                                       .in_dim = weight.in_dim,
                                       .num_groups = weight.num_groups});
    return;
  }
  backend_.launch(Bf16LinearArguments{.x = gathers ? ws_.normed : ws_.expert_act,
                                      .token_of_row = token_of_row,
                                      .num_valid = ws_.num_valid,
                                      .weight = weight.values,
                                      .y_bf16 = y,
                                      .num_tokens = rows,
                                      .x_stride = weight.in_dim,
                                      .x_batch_stride = gathers ? 0 : rows * weight.in_dim,
                                      .y_stride = weight.out_dim,
                                      .y_batch_stride = rows * weight.out_dim,
                                      .out_dim = weight.out_dim,
                                      .in_dim = weight.in_dim,
                                      .num_batches = weight.num_groups});
}

void Forward::run_moe(const Layer& layer, int64_t rows) {
  const MoeWeights& moe = *layer.weights.moe;
  const MlpWeights& experts = moe.experts;
  const std::string name = layer.name + ".moe";
  const bool fp8 = experts.down.is_fp8();
  run_router(layer, rows);
  observer_.run(
      name.c_str(), ".expert.*.gate", [&] { expert_linear(experts.gate_up, true, ws_.expert_gate_up, rows); });
  observer_.run(name.c_str(), ".expert.*.act", [&] {
    backend_.launch(SwigluArguments{.gate_up = ws_.expert_gate_up,
                                    .num_rows = ws_.num_valid,
                                    .act = fp8 && !observer_.has_probe() ? nullptr : ws_.expert_act,
                                    .codes = ws_.expert_codes,
                                    .scales = ws_.expert_scales,
                                    .max_rows = rows,
                                    .num_groups = experts.down.num_groups,
                                    .dim = static_cast<int>(experts.padded_dim),
                                    .scale_format = scale_format_});
  });
  observer_.run(name.c_str(), ".expert.*", [&] { expert_linear(experts.down, false, ws_.expert_rows, rows); });
  show_experts(layer, rows);
  if (moe.shared) {
    run_mlp(name + ".shared", *moe.shared, rows, ws_.shared, name + ".shared");
  }
  observer_.run(layer.name.c_str(), ".ffn", [&] {
    backend_.launch(CombineArguments{.expert_rows = ws_.expert_rows,
                                     .row_of_slot = ws_.row_of_slot,
                                     .topk_ids = ws_.topk_ids,
                                     .topk_weights = ws_.topk_weights,
                                     .shared = moe.shared ? ws_.shared : nullptr,
                                     .out = ws_.x,
                                     .num_tokens = rows,
                                     .hidden = static_cast<int>(config_.hidden_size),
                                     .k = static_cast<int>(config_.num_experts_per_tok)});
  });
  observer_.show(layer.name + ".ffn", ws_.x);
}

void Forward::show_experts(const Layer& layer, int64_t rows) {
  if (!observer_.has_probe()) {
    return;
  }
  const MlpWeights& experts = layer.weights.moe->experts;
  const int64_t dim = experts.padded_dim;
  const std::string name = layer.name + ".moe.expert.*";
  const auto num_valid = observer_.download(ws_.num_valid, config_.n_routed_experts);
  for (int64_t expert = 0; expert < config_.n_routed_experts; ++expert) {
    const int64_t count = num_valid[static_cast<size_t>(expert)];
    const int64_t first = expert * rows;
    observer_.show_expert(name + ".gate", expert, count, ws_.expert_gate_up + first * 2 * dim, 2 * dim);
    observer_.show_expert(name + ".up", expert, count, ws_.expert_gate_up + first * 2 * dim + dim, 2 * dim);
    observer_.show_expert(name + ".act", expert, count, ws_.expert_act + first * dim, dim);
    observer_.show_expert(name, expert, count, ws_.expert_rows + first * config_.hidden_size);
  }
}

}  // namespace gpu
