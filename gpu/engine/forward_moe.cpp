// The mixture of experts of a layer: router, the experts' grouped linears, combine.
#include <set>
#include <vector>

#include "gpu/engine/forward.hpp"
#include "gpu/kernels/add_parts.cuh"
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
  const auto [first, count] = shard_.stream_rows(rows);
  float* const logits = ws_.router_logits + first * config_.n_routed_experts;
  float* const scores = ws_.router_scores + first * config_.n_routed_experts;
  int32_t* const group_ids = ws_.group_ids + first * config_.topk_group;
  int32_t* const topk_ids = ws_.topk_ids + first * config_.num_experts_per_tok;
  float* const topk_weights = ws_.topk_weights + first * config_.num_experts_per_tok;
  observer_.run(name.c_str(), ".router_logits", [&] {
    bf16_linear(moe.router, ws_.normed + first * config_.hidden_size, {.y_f32 = logits}, count);
  });
  observer_.show(name + ".router_logits", logits);
  observer_.run(name.c_str(), ".topk_ids", [&] {
    backend_.launch(RouterArguments{
        .logits = logits,
        .bias = moe.bias,
        .scores = scores,
        .group_ids = group_ids,
        .topk_ids = topk_ids,
        .topk_weights = topk_weights,
        .num_tokens = count,
        .num_experts = static_cast<int>(config_.n_routed_experts),
        .num_groups = static_cast<int>(config_.n_group),
        .kept_groups = static_cast<int>(config_.topk_group),
        .k = static_cast<int>(config_.num_experts_per_tok),
        .scaling_factor = units_.routed_factor,
        .normalise = config_.norm_topk_prob,
        .scoring = config_.scoring_func == model::ScoringFunction::kSoftmax ? Scoring::kSoftmax : Scoring::kSigmoid,
        .group_score =
            config_.topk_method == model::TopkMethod::kNoauxTc ? GroupScore::kTopTwo : GroupScore::kLargest});
    if (!ranks_.exchange_tokens()) {
      align(ws_.topk_ids, rows);
    }
  });
  observer_.show(name + ".router_scores", scores);
  observer_.show(name + ".group_ids", group_ids);
  observer_.show(name + ".topk_ids", topk_ids);
  observer_.show(name + ".topk_weights", topk_weights);
}

// Where the tokens of the rank's experts lie among `rows`, from what each of them chose.
void Forward::align(const int32_t* experts, int64_t rows) {
  backend_.launch(AlignArguments{.topk_ids = experts,
                                 .token_of_row = ws_.token_of_row,
                                 .num_valid = ws_.num_valid,
                                 .row_of_slot = ws_.row_of_slot,
                                 .num_tokens = rows,
                                 .num_experts = static_cast<int>(shard_.num_experts),
                                 .k = static_cast<int>(config_.num_experts_per_tok)});
}

// The rank's share of its tokens goes to the ranks that have their experts; it gets what others send, and knows only how much that can
// be at most.
Forward::ExpertInput Forward::exchange_tokens(const Layer& layer, int64_t rows) {
  const auto [first, count] = shard_.share(rows);
  const bool fp8 = config_.quantization.has_value();
  const int64_t hidden = config_.hidden_size;
  const ExpertInput received{
      ws_.received, ws_.received_codes, ws_.received_scales, ws_.received_experts, ws_.max_expert_rows};
  if (ranks_.peers) {
    ranks_.peers->dispatch(layer.index,
                           {.codes = fp8 ? ws_.codes + first * hidden : nullptr,
                            .scales = fp8 ? ws_.scales + first : nullptr,
                            .values = fp8 ? nullptr : ws_.normed + first * hidden,
                            .topk_ids = ws_.topk_ids + first * config_.num_experts_per_tok,
                            .count = count,
                            .scale_stride = rows});
    return received;
  }
  const auto bytes = [](auto* rows_of) { return reinterpret_cast<std::byte*>(rows_of); };
  const comm::TokenExchange::Tokens tokens{
      .rows = fp8 ? bytes(ws_.codes + first * hidden) : bytes(ws_.normed + first * hidden),
      .scales = fp8 ? ws_.scales + first : nullptr,
      .scale_stride = rows,
      .topk_ids = ws_.topk_ids + first * config_.num_experts_per_tok,
      .count = count};
  const comm::TokenExchange::Received target{.rows = fp8 ? bytes(ws_.received_codes) : bytes(ws_.received),
                                             .scales = ws_.received_scales,
                                             .local_experts = ws_.received_experts};
  const ExpertPlacement& placement = ranks_.placements[layer.index];
  backend_.run_on_host([this, tokens, &placement, target] { ranks_.exchange->dispatch(tokens, placement, target); });
  align(ws_.received_experts, ws_.max_expert_rows);
  return received;
}

int64_t Forward::num_packed_tiles(int64_t rows) const {
  return emulated::packed_tiles(
      rows, static_cast<int>(config_.num_experts_per_tok), static_cast<int>(shard_.num_experts));
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
                                    .num_groups = static_cast<int>(shard_.num_experts),
                                    .k = static_cast<int>(config_.num_experts_per_tok),
                                    .hidden = static_cast<int>(config_.hidden_size)});
}

// Of the tokens that were packed, or of what the linear before it gave.
void Forward::packed_expert_linear(const LinearWeight& weight, bool is_first, half16* y, float* y_f32, int64_t rows) {
  constexpr int64_t kTile = emulated::kSm90Tokens;
  backend_.launch(
      Fp8LinearSm90Arguments{.x = is_first ? ws_.packed_codes : ws_.expert_codes,
                             .x_scale = is_first ? ws_.packed_scales : ws_.expert_scales,
                             .group_of_tile = ws_.group_of_tile,
                             .rows_of_tile = ws_.rows_of_tile,
                             .weight = weight.codes,
                             .weight_scale = weight.scales,
                             .y = y,
                             .y_f32 = y_f32,
                             .num_tokens = num_packed_tiles(rows) * kTile,
                             .x_scale_stride = kTile,
                             .x_scale_tile_stride = (weight.in_dim + kScaleBlockLen - 1) / kScaleBlockLen * kTile,
                             .out_dim = weight.out_dim,
                             .in_dim = weight.in_dim,
                             .num_groups = weight.num_groups,
                             .num_parts = weight.num_parts});
}

// One expert's part of a grouped linear, into y, or unrounded into y_f32. With an input, row r of an expert reads the token that chose
// it; without, what the linear before it gave.
void Forward::expert_linear(
    const LinearWeight& weight, const ExpertInput* input, half16* y, float* y_f32, int64_t rows) {
  if (packs_experts()) {
    packed_expert_linear(weight, input != nullptr, y, y_f32, rows);
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
                                       .y_f32 = y_f32,
                                       .num_tokens = rows,
                                       .x_scale_stride = rows,
                                       .out_dim = weight.out_dim,
                                       .in_dim = weight.in_dim,
                                       .num_groups = weight.num_groups,
                                       .num_parts = weight.num_parts});
    return;
  }
  backend_.launch(Bf16LinearArguments{.x = input != nullptr ? input->x : ws_.expert_act,
                                      .token_of_row = token_of_row,
                                      .num_valid = ws_.num_valid,
                                      .weight = weight.values,
                                      .y_f32 = y_f32,
                                      .y_half16 = y,
                                      .num_tokens = rows,
                                      .x_stride = weight.in_dim,
                                      .x_batch_stride = input != nullptr ? 0 : rows * weight.in_dim,
                                      .y_stride = weight.out_dim,
                                      .y_batch_stride = rows * weight.out_dim,
                                      .out_dim = weight.out_dim,
                                      .in_dim = weight.in_dim,
                                      .num_batches = weight.num_groups,
                                      .num_parts = weight.num_parts});
}

void Forward::run_moe(const Layer& layer, int64_t rows) {
  const MoeWeights& moe = *layer.weights.moe;
  const MlpWeights& experts = moe.experts;
  const std::string name = layer.name + ".moe";
  const bool fp8 = experts.down.is_fp8();
  run_router(layer, rows);
  ExpertInput input{ws_.normed, ws_.codes, ws_.scales, ws_.topk_ids, rows};
  if (ranks_.exchange_tokens()) {
    observer_.run(name.c_str(), ".dispatch", [&] { input = exchange_tokens(layer, rows); });
  }
  const ExpertRows made =
      packs_experts()
          ? ExpertRows{static_cast<int>(num_packed_tiles(input.num_rows)), emulated::kSm90Tokens, ws_.rows_of_tile}
          : ExpertRows{experts.down.num_groups, input.num_rows, ws_.num_valid};
  observer_.run(name.c_str(), ".expert.*.gate", [&] {
    if (packs_experts()) {
      pack(input);
    }
    expert_linear(experts.gate_up, &input, ws_.expert_gate_up, nullptr, input.num_rows);
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
  observer_.run(name.c_str(), ".expert.*", [&] {
    expert_linear(experts.down, nullptr, ws_.expert_rows, ws_.expert_sums, input.num_rows);
  });
  show_experts(layer, input.num_rows);
  if (moe.shared) {
    run_mlp(name + ".shared", *moe.shared, rows, ws_.shared, name + ".shared");
  }
  observer_.run(layer.name.c_str(), ".ffn", [&] { combine(layer, rows); });
}

// The outputs of the experts for the rank's share of the tokens, as they come back: where experts are cut, what their slices gave is
// added first.
void Forward::take_back(Shard::Share own) {
  backend_.run_on_host([this] {
    const auto* const rows = ws_.expert_sums != nullptr ? reinterpret_cast<const std::byte*>(ws_.expert_sums)
                                                        : reinterpret_cast<const std::byte*>(ws_.expert_rows);
    auto* const returned = ws_.expert_sums != nullptr ? reinterpret_cast<std::byte*>(ws_.returned_sums)
                                                      : reinterpret_cast<std::byte*>(ws_.returned_rows);
    ranks_.exchange->give_back(rows, ws_.row_of_slot, returned);
  });
  if (ws_.expert_sums != nullptr) {
    backend_.launch(AddPartsArguments{.parts = ws_.returned_sums,
                                      .sum = ws_.returned_rows,
                                      .count = own.count * config_.num_experts_per_tok * config_.hidden_size,
                                      .num_parts = static_cast<int>(shard_.expert_tp)});
  }
}

// Of the rank's share of the tokens, where they were shared out.
void Forward::combine(const Layer& layer, int64_t rows) {
  const int64_t hidden = config_.hidden_size;
  const int64_t k = config_.num_experts_per_tok;
  const auto own = ranks_.exchange_tokens() ? shard_.share(rows) : Shard::Share{0, rows};
  const auto [first, count] = own;
  const int32_t* const ids = ws_.topk_ids + first * k;
  const float* const topk_weights = ws_.topk_weights + first * k;
  const half16* const shared = layer.weights.moe->shared ? ws_.shared + first * hidden : nullptr;
  half16* const out = ws_.x + first * hidden;
  if (ranks_.peers) {
    ranks_.peers->combine(
        layer.index, {.topk_ids = ids, .topk_weights = topk_weights, .shared = shared, .out = out, .count = count});
  } else {
    if (ranks_.exchange) {
      take_back(own);
      show_outputs_of_slices(layer, own);
    }
    backend_.launch(CombineArguments{.expert_rows = ranks_.exchange ? ws_.returned_rows : ws_.expert_rows,
                                     .row_of_slot = ranks_.exchange ? ws_.returned_slots : ws_.row_of_slot,
                                     .topk_ids = ids,
                                     .topk_weights = topk_weights,
                                     .shared = shared,
                                     .out = out,
                                     .num_tokens = count,
                                     .hidden = static_cast<int>(hidden),
                                     .k = static_cast<int>(k)});
  }
  observer_.show(layer.name + ".ffn", out);
  if (ranks_.exchange_tokens() && ranks_.tp && !shard_.sequence_parallel) {
    const int64_t len = shard_.share_len(rows) * hidden;
    ranks_.tp->all_gather(ws_.x + shard_.tp_rank * len, ws_.x, len, half_);
  }
}

void Forward::show_experts(const Layer& layer, int64_t rows) {
  if (!observer_.has_probe()) {
    return;
  }
  const int64_t dim = layer.weights.moe->experts.padded_dim;
  const int64_t hidden = config_.hidden_size;
  const std::string name = layer.name + ".moe.expert.*";
  const auto num_valid = observer_.download(ws_.num_valid, shard_.num_experts);
  std::vector<int64_t> first_row(num_valid.size());  // of each slot
  for (size_t slot = 1; slot < first_row.size(); ++slot) {
    constexpr int64_t kTile = emulated::kSm90Tokens;
    first_row[slot] =
        first_row[slot - 1] + (packs_experts() ? (num_valid[slot - 1] + kTile - 1) / kTile * kTile : rows);
  }
  const auto& experts = shard_.experts[layer.index];
  for (const int64_t expert : std::set(experts.begin(), experts.end())) {
    std::vector<ExpertRow> gates;
    std::vector<ExpertRow> ups;
    std::vector<ExpertRow> acts;
    std::vector<ExpertRow> outputs;
    for (int64_t slot = 0; slot < shard_.num_experts; ++slot) {
      if (experts[static_cast<size_t>(slot)] != expert) {
        continue;
      }
      const auto tokens = observer_.download(ws_.token_of_row + slot * rows, num_valid[static_cast<size_t>(slot)]);
      int64_t row = first_row[static_cast<size_t>(slot)];
      for (const int32_t token : tokens) {
        gates.push_back({token, ws_.expert_gate_up + row * 2 * dim});
        ups.push_back({token, ws_.expert_gate_up + row * 2 * dim + dim});
        acts.push_back({token, ws_.expert_act + row * dim});
        outputs.push_back({token, ws_.expert_rows + row * hidden});
        ++row;
      }
    }
    observer_.show_expert(name + ".gate", expert, gates);
    observer_.show_expert(name + ".up", expert, ups);
    observer_.show_expert(name + ".act", expert, acts);
    if (ws_.expert_rows != nullptr) {
      observer_.show_expert(name, expert, outputs);
    }
  }
}

// Where experts are cut their outputs are whole where their tokens came from.
void Forward::show_outputs_of_slices(const Layer& layer, Shard::Share own) {
  if (!observer_.has_probe() || ws_.expert_sums == nullptr) {
    return;
  }
  const int64_t k = config_.num_experts_per_tok;
  const auto ids = observer_.download(ws_.topk_ids + own.first * k, own.count * k);
  for (int32_t expert = 0; expert < config_.n_routed_experts; ++expert) {
    std::vector<ExpertRow> rows;
    for (int64_t slot = 0; slot < own.count * k; ++slot) {
      if (ids[static_cast<size_t>(slot)] == expert) {
        rows.push_back({static_cast<int32_t>(slot / k), ws_.returned_rows + slot * config_.hidden_size});
      }
    }
    observer_.show_expert(layer.name + ".moe.expert.*", expert, rows);
  }
}

}  // namespace gpu
