// The mixture of experts of a layer: router, the experts' grouped linears, combine.
#include "gpu/engine/forward.hpp"
#include "gpu/kernels/align.cuh"
#include "gpu/kernels/bf16_linear.cuh"
#include "gpu/kernels/combine.cuh"
#include "gpu/kernels/fp8_linear.cuh"
#include "gpu/kernels/fp8_linear_sm90.cuh"
#include "gpu/kernels/pack_rows.cuh"
#include "gpu/kernels/router.cuh"
#include "gpu/kernels/swiglu.cuh"

namespace gpu {

void Forward::run_router(const Layer& layer, int64_t rows) {
  const MoeWeights& moe = *layer.weights.moe;
  const std::string name = layer.name + ".moe";
  observer_.run(
      name.c_str(), ".router_logits", [&] { bf16_linear(moe.router, ws_.normed, ws_.router_logits, nullptr, rows); });
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
    if (!ranks_.exchange) {
      align(ws_.topk_ids, rows);
    }
  });
  observer_.show(name + ".router_scores", ws_.router_scores);
  observer_.show(name + ".group_ids", ws_.group_ids);
  observer_.show(name + ".topk_ids", ws_.topk_ids);
  observer_.show(name + ".topk_weights", ws_.topk_weights);
}

// Where the tokens of the rank's experts lie among `rows`, from what each of them chose.
void Forward::align(const int32_t* experts, int64_t rows) {
  backend_.launch(AlignArguments{.topk_ids = experts,
                                 .token_of_row = ws_.token_of_row,
                                 .num_valid = ws_.num_valid,
                                 .row_of_slot = ws_.row_of_slot,
                                 .num_tokens = rows,
                                 .num_experts = static_cast<int>(shard_.num_experts()),
                                 .k = static_cast<int>(config_.num_experts_per_tok)});
}

// The rank's share of its tokens goes to the ranks that have their experts; it gets what others send, and knows only how much that can
// be at most.
Forward::ExpertInput Forward::exchange_tokens(int64_t rows) {
  const auto [first, count] = shard_.share(rows);
  const bool fp8 = config_.quantization.has_value();
  const int64_t hidden = config_.hidden_size;
  const auto bytes = [](auto* rows_of) { return reinterpret_cast<std::byte*>(rows_of); };
  const comm::TokenExchange::Tokens tokens{
      .rows = fp8 ? bytes(ws_.codes + first * hidden) : bytes(ws_.normed + first * hidden),
      .scales = fp8 ? ws_.scales + first : nullptr,
      .scale_stride = rows,
      .topk_ids = ws_.topk_ids + first * config_.num_experts_per_tok,
      .count = count};
  const comm::TokenExchange::Received received{.rows = fp8 ? bytes(ws_.received_codes) : bytes(ws_.received),
                                               .scales = ws_.received_scales,
                                               .local_experts = ws_.received_experts};
  backend_.run_on_host([this, tokens, received] { ranks_.exchange->dispatch(tokens, received); });
  align(ws_.received_experts, ws_.max_expert_rows);
  return {ws_.received, ws_.received_codes, ws_.received_scales, ws_.received_experts, ws_.max_expert_rows};
}

int64_t Forward::num_packed_tiles(int64_t rows) const {
  return emulated::packed_tiles(
      rows, static_cast<int>(config_.num_experts_per_tok), static_cast<int>(shard_.num_experts()));
}

void Forward::pack(const ExpertInput& input) {
  backend_.launch(PackRowsArguments{.codes = input.codes,
                                    .scales = input.scales,
                                    .ids = input.experts,
                                    .num_valid = ws_.num_valid,
                                    .row_of_choice = ws_.row_of_slot,
                                    .packed_codes = ws_.packed_codes,
                                    .packed_scales = ws_.packed_scales,
                                    .group_of_tile = ws_.group_of_tile,
                                    .rows_of_tile = ws_.rows_of_tile,
                                    .num_tokens = input.num_rows,
                                    .num_tiles = num_packed_tiles(input.num_rows),
                                    .num_groups = static_cast<int>(shard_.num_experts()),
                                    .k = static_cast<int>(config_.num_experts_per_tok),
                                    .hidden = static_cast<int>(config_.hidden_size)});
}

// Of the tokens that were packed, or of what the linear before it gave.
void Forward::packed_expert_linear(const LinearWeight& weight, bool is_first, bf16* y, int64_t rows) {
  constexpr int64_t kTile = emulated::kSm90Tokens;
  backend_.launch(
      Fp8LinearSm90Arguments{.x = is_first ? ws_.packed_codes : ws_.expert_codes,
                             .x_scale = is_first ? ws_.packed_scales : ws_.expert_scales,
                             .group_of_tile = ws_.group_of_tile,
                             .rows_of_tile = ws_.rows_of_tile,
                             .weight = weight.codes,
                             .weight_scale = weight.scales,
                             .y = y,
                             .num_tokens = num_packed_tiles(rows) * kTile,
                             .x_scale_stride = kTile,
                             .x_scale_tile_stride = (weight.in_dim + kScaleBlockLen - 1) / kScaleBlockLen * kTile,
                             .out_dim = weight.out_dim,
                             .in_dim = weight.in_dim,
                             .num_groups = weight.num_groups});
}

// One expert's part of a grouped linear. With an input, row r of an expert reads the token that chose it; without, what the linear
// before it gave.
void Forward::expert_linear(const LinearWeight& weight, const ExpertInput* input, bf16* y, int64_t rows) {
  if (packs_experts()) {
    packed_expert_linear(weight, input != nullptr, y, rows);
    return;
  }
  const int32_t* const token_of_row = input != nullptr ? ws_.token_of_row : nullptr;
  if (weight.is_fp8()) {
    backend_.launch(Fp8LinearArguments{.x = input != nullptr ? input->codes : ws_.expert_codes,
                                       .x_scale = input != nullptr ? input->scales : ws_.expert_scales,
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
  backend_.launch(Bf16LinearArguments{.x = input != nullptr ? input->x : ws_.expert_act,
                                      .token_of_row = token_of_row,
                                      .num_valid = ws_.num_valid,
                                      .weight = weight.values,
                                      .y_bf16 = y,
                                      .num_tokens = rows,
                                      .x_stride = weight.in_dim,
                                      .x_batch_stride = input != nullptr ? 0 : rows * weight.in_dim,
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
  ExpertInput input{ws_.normed, ws_.codes, ws_.scales, ws_.topk_ids, rows};
  if (ranks_.exchange) {
    observer_.run(name.c_str(), ".dispatch", [&] { input = exchange_tokens(rows); });
  }
  const ExpertRows made =
      packs_experts()
          ? ExpertRows{static_cast<int>(num_packed_tiles(input.num_rows)), emulated::kSm90Tokens, ws_.rows_of_tile}
          : ExpertRows{experts.down.num_groups, input.num_rows, ws_.num_valid};
  observer_.run(name.c_str(), ".expert.*.gate", [&] {
    if (packs_experts()) {
      pack(input);
    }
    expert_linear(experts.gate_up, &input, ws_.expert_gate_up, input.num_rows);
  });
  observer_.run(name.c_str(), ".expert.*.act", [&] {
    backend_.launch(SwigluArguments{.gate_up = ws_.expert_gate_up,
                                    .num_rows = made.num_rows,
                                    .act = fp8 && !observer_.has_probe() ? nullptr : ws_.expert_act,
                                    .codes = ws_.expert_codes,
                                    .scales = ws_.expert_scales,
                                    .max_rows = made.max_rows,
                                    .num_groups = made.num_groups,
                                    .dim = static_cast<int>(experts.padded_dim),
                                    .scale_format = scale_format_});
  });
  observer_.run(
      name.c_str(), ".expert.*", [&] { expert_linear(experts.down, nullptr, ws_.expert_rows, input.num_rows); });
  show_experts(layer, input.num_rows);
  if (moe.shared) {
    run_mlp(name + ".shared", *moe.shared, rows, ws_.shared, name + ".shared");
  }
  observer_.run(layer.name.c_str(), ".ffn", [&] { combine(layer, rows); });
  observer_.show(layer.name + ".ffn", ws_.x);
}

// Of the rank's share of the tokens, where they were shared out.
void Forward::combine(const Layer& layer, int64_t rows) {
  const int64_t hidden = config_.hidden_size;
  const int64_t k = config_.num_experts_per_tok;
  const auto [first, count] = ranks_.exchange ? shard_.share(rows) : Shard::Share{0, rows};
  if (ranks_.exchange) {
    backend_.run_on_host([this] {
      ranks_.exchange->give_back(reinterpret_cast<const std::byte*>(ws_.expert_rows),
                                 ws_.row_of_slot,
                                 reinterpret_cast<std::byte*>(ws_.returned_rows));
    });
  }
  backend_.launch(CombineArguments{.expert_rows = ranks_.exchange ? ws_.returned_rows : ws_.expert_rows,
                                   .row_of_slot = ranks_.exchange ? ws_.returned_slots : ws_.row_of_slot,
                                   .topk_ids = ws_.topk_ids + first * k,
                                   .topk_weights = ws_.topk_weights + first * k,
                                   .shared = layer.weights.moe->shared ? ws_.shared + first * hidden : nullptr,
                                   .out = ws_.x + first * hidden,
                                   .num_tokens = count,
                                   .hidden = static_cast<int>(hidden),
                                   .k = static_cast<int>(k)});
  if (ranks_.exchange && ranks_.tp) {
    const int64_t len = shard_.share_len(rows) * hidden;
    ranks_.tp->all_gather(ws_.x + shard_.tp_rank * len, ws_.x, len, comm::Element::kBf16);
  }
}

void Forward::show_experts(const Layer& layer, int64_t rows) {
  if (!observer_.has_probe()) {
    return;
  }
  const MlpWeights& experts = layer.weights.moe->experts;
  const int64_t dim = experts.padded_dim;
  const std::string name = layer.name + ".moe.expert.*";
  const auto num_valid = observer_.download(ws_.num_valid, shard_.num_experts());
  int64_t next = 0;
  for (int64_t expert = shard_.experts.begin; expert < shard_.experts.end; ++expert) {
    const int64_t count = num_valid[static_cast<size_t>(expert - shard_.experts.begin)];
    const int64_t first = next;
    next +=
        packs_experts() ? (count + emulated::kSm90Tokens - 1) / emulated::kSm90Tokens * emulated::kSm90Tokens : rows;
    observer_.show_expert(name + ".gate", expert, count, ws_.expert_gate_up + first * 2 * dim, 2 * dim);
    observer_.show_expert(name + ".up", expert, count, ws_.expert_gate_up + first * 2 * dim + dim, 2 * dim);
    observer_.show_expert(name + ".act", expert, count, ws_.expert_act + first * dim, dim);
    observer_.show_expert(name, expert, count, ws_.expert_rows + first * config_.hidden_size);
  }
}

}  // namespace gpu
