#include "simulator/step_model.hpp"

#include <algorithm>
#include <array>

#include "model/check.hpp"
#include "simulator/op_call.hpp"
#include "simulator/op_work.hpp"

namespace simulator {
namespace {

double real(int64_t value) {
  return static_cast<double>(value);
}

// An eager step: kernels of a decode layer, and what the host takes to launch one.
constexpr double kKernelsPerLayer = 25;
constexpr double kLaunchUs = 5;

// Each half's exchange behind the other's computation.
void hide_exchange(StepCost& cost) {
  constexpr std::array kExchange{StepPart::kDispatch, StepPart::kCombine};
  const double exchange_us = cost.sum_us(kExchange);
  cost.add_plain(StepPart::kHidden, -std::min(exchange_us, cost.sum_us() - exchange_us));
}

constexpr size_t kMostLeaves = 24;  // of a step, so that they are put down in one place

}  // namespace

StepModel::StepModel(const model::ModelConfig& config,
                     const Hardware& hardware,
                     const std::vector<ChosenFit>& fits,
                     const EngineProfile& engine,
                     const RankLayout& rank,
                     MoeCurves& curves)
    : config_(config), hardware_(hardware), peaks_(peaks(hardware)), fits_(fits), engine_(engine), rank_(rank) {
  CHECK_EQ(fits_.size(), kOpFamilies.size());
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    num_moe_layers_ += config_.is_moe_layer(layer) ? 1 : 0;
  }
  if (num_moe_layers_ > 0) {
    const bool one_domain = real(rank_.layout.ep) <= hardware_.nvlink_domain_gpus.value;
    const bool one_sided = engine_.name == "trtllm" && one_domain;
    decode_curve_ = curve_of(
        curves,
        rank_.backend.value_or(one_sided ? AllToAllBackend::kNvlinkOneSided : AllToAllBackend::kDeepEpLowLatency));
    prefill_curve_ = curve_of(curves, one_sided ? AllToAllBackend::kNvlinkOneSided : AllToAllBackend::kDeepEpNormal);
  }
}

bool StepModel::tp_crosses_domains() const {
  return real(rank_.layout.tp) > hardware_.nvlink_domain_gpus.value;
}

void StepModel::add(StepCost& cost, StepPart part, double count, const OpCall& call) const {
  const OpTime time = op_time(fit_of(call.family), call, peaks_);
  cost.leaves.push_back({.part = part,
                         .count = count,
                         .each_us = time.time_us,
                         .work = call.work,
                         .floor_each_us = floor_us(call.family, call.work, peaks_),
                         .family = call.family,
                         .answer = time.answer});
}

// Three leaves; a table gives their sum, which the constants' terms then share.
void StepModel::add_attention(StepCost& cost, const DecodePoint& half) const {
  const bool is_fp8 = rank_.kv_dtype == KvDtype::kFp8;
  const auto family = is_fp8 ? OpFamily::kAttentionFp8 : OpFamily::kAttentionBf16;
  const AttentionShape shape{.heads = real(config_.num_attention_heads) / real(rank_.layout.tp),
                             .sequences = half.sequences,
                             .new_tokens = real(1 + rank_.mtp_depth),
                             .kv_len = half.kv_len,
                             .cache_bytes_each = is_fp8 ? 1 : 2};
  const OpWork work = attention_work(config_, shape);
  std::array<double, 3> terms = attention_terms_us(family, fit_of(family).fit.constants, work, peaks_);
  OpCall call{.family = family, .work = work};
  if (rank_.mtp_depth == 0) {  // tables have one new token a sequence
    call.axes = {shape.heads, shape.kv_len, shape.sequences};
  }
  const OpTime time = op_time(fit_of(family), call, peaks_);
  const double sum_us = terms[0] + terms[1] + terms[2];
  for (double& term : terms) {
    term *= time.answer ? time.time_us / sum_us : 1;
  }
  const double layers = real(config_.num_hidden_layers);
  const auto add_term = [&](StepPart part, double each_us, const OpWork& of_term) {
    cost.leaves.push_back({.part = part,
                           .count = layers,
                           .each_us = each_us,
                           .work = of_term,
                           .floor_each_us = floor_us(family, of_term, peaks_),
                           .family = family,
                           .answer = time.answer});
  };
  add_term(StepPart::kAttentionFixed, terms[0], {});
  add_term(StepPart::kAttentionProjections,
           terms[1],
           {.weight_bytes = work.weight_bytes, .weight_flops = work.weight_flops});
  add_term(StepPart::kAttentionCache, terms[2], {.other_bytes = work.other_bytes, .score_flops = work.score_flops});
}

void StepModel::finish_decode(StepCost& cost, double draft_us) const {
  cost.add_plain(StepPart::kDrafting, draft_us);
  const double kernels_us = cost.sum_us();
  cost.add_plain(StepPart::kInStream, (engine_.stream_factor - 1) * kernels_us);
  if (rank_.early_engine && hardware_.generation == Generation::kBlackwell) {
    cost.add_plain(StepPart::kEarlyEngine, engine_.early_blackwell_layer_us * real(config_.num_hidden_layers));
  }
  if (!rank_.cuda_graph) {
    const double launches_us = kLaunchUs * kKernelsPerLayer * real(config_.num_hidden_layers);
    cost.add_plain(StepPart::kLaunches, std::max(0.0, launches_us - kernels_us));
  }
  cost.add_plain(StepPart::kHost, engine_.host_us);
  cost.add_totals();
}

StepModel::Tokens StepModel::decode_tokens(const DecodePoint& point) const {
  const double halves = rank_.two_batch_overlap ? 2 : 1;
  const double replicas = real(std::max<int64_t>(1, rank_.layout.ep / rank_.layout.tp));
  const double tokens = point.sequences / halves * real(1 + rank_.mtp_depth);
  return {.rank = tokens, .group = tokens * replicas};
}

std::vector<MoeLayerTime> StepModel::sampled_moe(const DecodePoint& point, int64_t num_steps) const {
  return decode_curve_ == nullptr
             ? std::vector<MoeLayerTime>{}
             : decode_curve_->sampled_steps(decode_tokens(point).group, num_moe_layers_, num_steps);
}

std::vector<std::vector<MoeRankTime>> StepModel::sampled_ranks(const DecodePoint& point) const {
  return decode_curve_ == nullptr ? std::vector<std::vector<MoeRankTime>>{}
                                  : decode_curve_->sampled_ranks(decode_tokens(point).group, num_moe_layers_);
}

StepCost StepModel::decode(const DecodePoint& point) const {
  CHECK(point.sequences > 0);
  const auto& layout = rank_.layout;
  const double halves = rank_.two_batch_overlap ? 2 : 1;
  const Tokens tokens = decode_tokens(point);
  const double layers = real(config_.num_hidden_layers);
  StepCost cost;
  cost.leaves.reserve(kMostLeaves);
  add_attention(cost, {.sequences = point.sequences / halves, .kv_len = point.kv_len});
  add_ffn(cost, tokens);
  add_collectives(cost, tokens);
  const double layer_us = cost.sum_us() / layers;
  add(cost,
      StepPart::kHead,
      1,
      gemm_call({tokens.rank, real(config_.vocab_size) / real(layout.tp), real(config_.hidden_size)}, 2));
  const double head_us = cost.leaves.back().each_us;
  if (rank_.two_batch_overlap) {
    for (StepLeaf& leaf : cost.leaves) {
      leaf.count *= halves;
    }
    hide_exchange(cost);
  }
  finish_decode(cost, real(rank_.mtp_depth) * (layer_us + head_us));
  return cost;
}

StepCost StepModel::prefill(const PrefillPoint& point) const {
  const double new_tokens = point.new_tokens;
  CHECK(new_tokens > 0);
  const auto& layout = rank_.layout;
  const double replicas = point.is_alone ? 1 : real(std::max<int64_t>(1, layout.ep / layout.tp));
  const Tokens tokens{.rank = new_tokens, .group = new_tokens * replicas, .is_prefill = true};
  const double heads = real(config_.num_attention_heads) / real(layout.tp);
  const double layers = real(config_.num_hidden_layers);
  const double weights = attention_weights(config_, heads);
  StepCost cost;
  cost.leaves.reserve(kMostLeaves);
  add(cost,
      StepPart::kAttentionProjections,
      layers,
      {.family = OpFamily::kGemmFp8, .work = {.weight_bytes = weights, .weight_flops = 2 * new_tokens * weights}});
  add(cost,
      StepPart::kAttentionCache,
      layers,
      {.family = OpFamily::kPrefillScores, .work = prefill_scores_work(config_, heads, point.num_cached, new_tokens)});
  if (hardware_.name == "b300") {
    StepLeaf& scores = cost.leaves.back();
    const double products_us = std::max(0.0, scores.each_us - fit_of(OpFamily::kPrefillScores).fit.constants.front());
    scores.each_us += (engine_.b300_scores_factor - 1) * products_us + engine_.b300_scores_us;
  }
  add_ffn(cost, tokens);
  add_collectives(cost, tokens);
  if (rank_.two_batch_overlap) {
    hide_exchange(cost);  // halves of thousands of tokens cost half of the whole
  }
  cost.add_plain(StepPart::kInStream, (engine_.prefill_factor - 1) * cost.sum_us());
  cost.add_totals();
  return cost;
}

}  // namespace simulator
