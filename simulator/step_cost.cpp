#include "simulator/step_cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "model/check.hpp"
#include "simulator/op_work.hpp"

namespace simulator {
namespace {

double real(int64_t value) {
  return static_cast<double>(value);
}

constexpr double kBf16Bytes = 2;

// Ring and tree all-reduce between NVLink domains. No public table has small messages (README of the measurements, section 10):
// 30 us is three InfiniBand hops of pplx-kernels' NCCL baseline (24 us, one all-to-all of 8) on top of a kernel; 15 GB/s what the
// low-latency protocol moves, 80 us and 85 % of the NICs a ring. Assumed, not fitted.
constexpr double kNetworkFixedUs = 30;
constexpr double kNetworkLowLatencyBytesPerUs = 15e3;
constexpr double kNetworkRingUs = 80;
constexpr double kNetworkRingFrac = 0.85;

// An eager step: kernels of a decode layer, and what the host takes to launch one.
constexpr double kKernelsPerLayer = 25;
constexpr double kLaunchUs = 5;

constexpr auto kParts = std::to_array<StepPartInfo>(
    {{StepPart::kAttentionFixed, "attention", "fixed", "layers x fixed time of the module"},
     {StepPart::kAttentionProjections, "attention", "projections", "layers x |weights / memory, FLOPs / peak|_3"},
     {StepPart::kAttentionCache, "attention", "cache", "layers x |cache / memory, FLOPs / peak|_3"},
     {StepPart::kRouter, "ffn", "router", "MoE layers x BF16 GEMM"},
     {StepPart::kExpertsFixed, "ffn", "experts, fixed", "MoE layers x fixed time"},
     {StepPart::kExperts,
      "ffn",
      "experts",
      "MoE layers x |chosen experts of the average rank / memory, FLOPs / peak|_3"},
     {StepPart::kSharedExpert, "ffn", "shared expert", "MoE layers x |weights / memory, FLOPs / peak|_3"},
     {StepPart::kDenseFfn, "ffn", "dense layers", "dense layers x FP8 GEMMs"},
     {StepPart::kHead, "head", "head", "BF16 GEMM"},
     {StepPart::kAllReduce, "communication", "all-reduce", "behind attention and FFN"},
     {StepPart::kDispatch, "communication", "dispatch", "MoE layers x all-to-all of the average rank, FP8"},
     {StepPart::kCombine, "communication", "combine", "MoE layers x all-to-all of the average rank, BF16"},
     {StepPart::kWaiting,
      "communication",
      "waiting",
      "MoE layers x (slowest rank of each - average rank), routing sampled"},
     {StepPart::kPipelineSend, "communication", "pipeline send", "stages - 1"},
     {StepPart::kDrafting, "engine", "MTP drafting", "depth x (one layer and the head)"},
     {StepPart::kInStream, "engine", "in the stream", "(stream factor - 1) x kernels"},
     {StepPart::kEarlyEngine, "engine", "release of 2025", "layers x constant, Blackwell"},
     {StepPart::kLaunches, "engine", "launches", "what 25 launches a layer of 5 us exceed the kernels by"},
     {StepPart::kHost, "engine", "host", "once a step"},
     {StepPart::kHidden, "engine", "hidden by overlap", "all-to-all behind the other half batch"}});

}  // namespace

const StepPartInfo& step_part_info(StepPart part) {
  const auto found = std::ranges::find(kParts, part, &StepPartInfo::part);
  CHECK(found != kParts.end());
  return *found;
}

// Tokens of a DP rank, and of the whole EP group.
struct StepModel::Tokens {
  double rank = 0;
  double group = 0;
  bool is_prefill = false;
};

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

MoeCurve* StepModel::curve_of(MoeCurves& curves, AllToAllBackend backend) const {
  const auto& constants = fits_[static_cast<size_t>(OpFamily::kExperts)].fit.constants;
  const double expert_tp = real(rank_.layout.expert_tp());
  const ExpertTime expert_time = [constants, expert_tp, config = config_, peaks = peaks_](const RankLoad& load) {
    const OpWork work = experts_work(config, real(load.num_active_experts), real(load.num_tokens), expert_tp);
    return predict_us(OpFamily::kExperts, constants, work, peaks);
  };
  std::vector<double> key = constants;
  key.insert(key.end(), {expert_tp, expert_weights(config_)});
  return &curves.curve({.hardware = hardware_,
                        .backend = backend,
                        .num_ranks = rank_.layout.ep,
                        .has_all_to_all = rank_.layout.ep > rank_.layout.tp,
                        .hidden_size = config_.hidden_size,
                        .router = {.num_experts = config_.n_routed_experts,
                                   .experts_per_token = config_.num_experts_per_tok,
                                   .num_groups = config_.n_group,
                                   .kept_groups = config_.topk_group},
                        .expert_time = expert_time},
                       {.num_slots = config_.n_routed_experts + rank_.redundant_experts, .eplb = rank_.eplb},
                       key);
}

bool StepModel::tp_crosses_domains() const {
  return real(rank_.layout.tp) > hardware_.nvlink_domain_gpus.value;
}

void StepModel::add(StepCost& cost, StepPart part, double count, OpFamily family, const OpWork& work) const {
  const auto& constants = fits_[static_cast<size_t>(family)].fit.constants;
  cost.leaves.push_back({.part = part,
                         .count = count,
                         .each_us = predict_us(family, constants, work, peaks_),
                         .work = work,
                         .floor_each_us = floor_us(family, work, peaks_),
                         .family = family});
}

double StepModel::all_reduce_us(double message_bytes) const {
  const int64_t tp = rank_.layout.tp;
  const int64_t inside = std::min(tp, static_cast<int64_t>(hardware_.nvlink_domain_gpus.value));
  const auto& constants = fits_[static_cast<size_t>(OpFamily::kAllReduce)].fit.constants;
  double time_us =
      predict_us(OpFamily::kAllReduce, constants, {.message_bytes = message_bytes, .num_ranks = inside}, peaks_);
  if (tp > inside) {
    const double domains = std::ceil(real(tp) / real(inside));
    const double ring =
        2 * (domains - 1) / domains * message_bytes / (peaks_.network * real(inside) * kNetworkRingFrac);
    time_us += kNetworkFixedUs * std::log2(domains) +
               std::min(message_bytes / kNetworkLowLatencyBytesPerUs, kNetworkRingUs - kNetworkFixedUs + ring);
  }
  return time_us;
}

void StepModel::add_moe(StepCost& cost, const Tokens& tokens) const {
  MoeCurve& curve = *(tokens.is_prefill ? prefill_curve_ : decode_curve_);
  const MoeLayerTime layer = curve.at(tokens.group);
  const double layers = real(num_moe_layers_);
  const double fixed_us = fits_[static_cast<size_t>(OpFamily::kExperts)].fit.constants.front();
  const OpWork work = experts_work(config_, layer.mean_active_experts, layer.mean_rows, real(rank_.layout.expert_tp()));
  cost.leaves.push_back(
      {.part = StepPart::kExpertsFixed, .count = layers, .each_us = fixed_us, .family = OpFamily::kExperts});
  cost.leaves.push_back({.part = StepPart::kExperts,
                         .count = layers,
                         .each_us = layer.compute_us - fixed_us,
                         .work = work,
                         .floor_each_us = floor_us(OpFamily::kExperts, work, peaks_),
                         .family = OpFamily::kExperts});
  constexpr std::string_view kSampled = "sampled routing, docs/skew.md";
  if (curve.deployment().has_all_to_all) {
    const AllToAll& all_to_all = curve.all_to_all();
    const double ranks = real(rank_.layout.ep);
    const TierCopies copies = even_copies(all_to_all,
                                          curve.deployment().backend,
                                          rank_.layout.ep,
                                          config_.num_experts_per_tok,
                                          std::max(1.0, tokens.group) / ranks);
    const auto exchange = [&](StepPart part, double each_us, double bytes) {
      const OpWork moved{.nvlink_bytes = copies.nvlink * bytes, .network_bytes = copies.network * bytes};
      cost.leaves.push_back(
          {.part = part,
           .count = layers,
           .each_us = each_us,
           .work = moved,
           .floor_each_us = std::max(moved.nvlink_bytes / peaks_.nvlink, moved.network_bytes / peaks_.network),
           .source = all_to_all.basis().source});
    };
    exchange(StepPart::kDispatch, layer.dispatch_us, all_to_all.dispatch_bytes_per_copy());
    exchange(StepPart::kCombine, layer.combine_us, all_to_all.combine_bytes_per_copy());
  }
  if (layer.wait_us > 0) {
    cost.leaves.push_back({.part = StepPart::kWaiting, .count = layers, .each_us = layer.wait_us, .source = kSampled});
  }
}

void StepModel::add_ffn(StepCost& cost, const Tokens& tokens) const {
  const auto& layout = rank_.layout;
  const double moe_layers = real(num_moe_layers_);
  const double dense_layers = real(config_.num_hidden_layers - num_moe_layers_);
  const double hidden = real(config_.hidden_size);
  const double tp = real(layout.tp);
  if (num_moe_layers_ > 0) {
    add(cost,
        StepPart::kRouter,
        moe_layers,
        OpFamily::kGemmBf16,
        gemm_work({tokens.rank, real(config_.n_routed_experts), hidden}, 2));
    add_moe(cost, tokens);
    const double fixed_us = fits_[static_cast<size_t>(OpFamily::kExperts)].fit.constants.front();
    // Fused with the routed experts or beside them on another stream: no fixed time of its own.
    const bool is_spread = layout.ep > layout.tp;
    const double shared = real(config_.n_shared_experts);
    const double cut = is_spread ? 1 : tp;
    const double shared_tokens = is_spread ? tokens.rank / tp : tokens.rank;
    add(cost,
        StepPart::kSharedExpert,
        moe_layers,
        OpFamily::kExperts,
        experts_work(config_, shared, shared * shared_tokens, cut));
    cost.leaves.back().each_us -= fixed_us;
  }
  if (dense_layers > 0) {
    const double width = real(config_.intermediate_size) / tp;
    add(cost, StepPart::kDenseFfn, dense_layers, OpFamily::kGemmFp8, gemm_work({tokens.rank, 2 * width, hidden}, 1));
    add(cost, StepPart::kDenseFfn, dense_layers, OpFamily::kGemmFp8, gemm_work({tokens.rank, hidden, width}, 1));
  }
}

void StepModel::add_collectives(StepCost& cost, const Tokens& tokens) const {
  const auto& layout = rank_.layout;
  const double layers = real(config_.num_hidden_layers);
  const double moe_layers = real(num_moe_layers_);
  const bool is_spread = layout.ep > layout.tp;
  if (layout.tp > 1) {
    const double bytes = tokens.rank * real(config_.hidden_size) * kBf16Bytes;
    const double behind_ffn = is_spread ? layers - moe_layers : layers;
    cost.leaves.push_back({.part = StepPart::kAllReduce,
                           .count = layers + behind_ffn,
                           .each_us = all_reduce_us(bytes),
                           .work = {.message_bytes = bytes, .num_ranks = layout.tp},
                           .floor_each_us = bytes / peaks_.nvlink,
                           .family = OpFamily::kAllReduce});
  }
  if (layout.pp > 1) {
    const double bytes = tokens.rank * real(config_.hidden_size) * kBf16Bytes / real(layout.tp);
    cost.leaves.push_back({.part = StepPart::kPipelineSend,
                           .count = real(layout.pp - 1),
                           .each_us = kNetworkFixedUs + bytes / peaks_.network,
                           .work = {.network_bytes = bytes},
                           .floor_each_us = bytes / peaks_.network});
  }
}

namespace {

double sum_us(const StepCost& cost) {
  double sum = 0;
  for (const StepLeaf& leaf : cost.leaves) {
    sum += leaf.total_us();
  }
  return sum;
}

void add_plain(StepCost& cost, StepPart part, double time_us) {
  if (time_us != 0) {
    cost.leaves.push_back({.part = part, .each_us = time_us});
  }
}

void add_totals(StepCost& cost) {
  cost.total_us = sum_us(cost);
  for (const StepLeaf& leaf : cost.leaves) {
    cost.floor_us += leaf.count * leaf.floor_each_us;
  }
}

double sum_of(const StepCost& cost, std::span<const StepPart> parts) {
  double sum = 0;
  for (const StepLeaf& leaf : cost.leaves) {
    sum += std::ranges::find(parts, leaf.part) != parts.end() ? leaf.total_us() : 0;
  }
  return sum;
}

// sum + weight * work.
void add_work(OpWork& sum, const OpWork& work, double weight) {
  for (double OpWork::*member : {&OpWork::weight_bytes,
                                 &OpWork::other_bytes,
                                 &OpWork::weight_flops,
                                 &OpWork::score_flops,
                                 &OpWork::message_bytes,
                                 &OpWork::nvlink_bytes,
                                 &OpWork::network_bytes}) {
    sum.*member += weight * work.*member;
  }
}

}  // namespace

StepCost weighted_sum(std::span<const StepCost> costs, double weight) {
  StepCost sum;
  for (const StepCost& cost : costs) {
    std::map<StepPart, size_t> num_seen;
    for (const StepLeaf& leaf : cost.leaves) {
      // The n-th leaf of a part meets the n-th of the sum.
      size_t to_skip = num_seen[leaf.part]++;
      auto same = std::ranges::find_if(
          sum.leaves, [&](const StepLeaf& other) { return other.part == leaf.part && to_skip-- == 0; });
      if (same == sum.leaves.end()) {
        sum.leaves.push_back({.part = leaf.part, .count = leaf.count, .family = leaf.family, .source = leaf.source});
        same = sum.leaves.end() - 1;
      }
      same->each_us += weight * leaf.each_us;
      same->floor_each_us += weight * leaf.floor_each_us;
      add_work(same->work, leaf.work, weight);
    }
  }
  add_totals(sum);
  return sum;
}

void StepModel::finish_decode(StepCost& cost, double draft_us) const {
  add_plain(cost, StepPart::kDrafting, draft_us);
  const double kernels_us = sum_us(cost);
  add_plain(cost, StepPart::kInStream, (engine_.stream_factor - 1) * kernels_us);
  if (rank_.early_engine && generation(hardware_) == Generation::kBlackwell) {
    add_plain(cost, StepPart::kEarlyEngine, engine_.early_blackwell_layer_us * real(config_.num_hidden_layers));
  }
  if (!rank_.cuda_graph) {
    const double launches_us = kLaunchUs * kKernelsPerLayer * real(config_.num_hidden_layers);
    add_plain(cost, StepPart::kLaunches, std::max(0.0, launches_us - kernels_us));
  }
  add_plain(cost, StepPart::kHost, engine_.host_us);
  add_totals(cost);
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
  const double new_tokens = real(1 + rank_.mtp_depth);
  const double sequences = point.sequences / halves;
  const Tokens tokens = decode_tokens(point);
  StepCost cost;
  const auto family = rank_.kv_dtype == KvDtype::kFp8 ? OpFamily::kAttentionFp8 : OpFamily::kAttentionBf16;
  const OpWork attention = attention_work(config_,
                                          {.heads = real(config_.num_attention_heads) / real(layout.tp),
                                           .sequences = sequences,
                                           .new_tokens = new_tokens,
                                           .kv_len = point.kv_len,
                                           .cache_bytes_each = rank_.kv_dtype == KvDtype::kFp8 ? 1 : 2});
  const double layers = real(config_.num_hidden_layers);
  const auto terms = attention_terms_us(family, fits_[static_cast<size_t>(family)].fit.constants, attention, peaks_);
  cost.leaves.push_back({.part = StepPart::kAttentionFixed, .count = layers, .each_us = terms[0], .family = family});
  const OpWork projections{.weight_bytes = attention.weight_bytes, .weight_flops = attention.weight_flops};
  cost.leaves.push_back({.part = StepPart::kAttentionProjections,
                         .count = layers,
                         .each_us = terms[1],
                         .work = projections,
                         .floor_each_us = floor_us(family, projections, peaks_),
                         .family = family});
  const OpWork cache{.other_bytes = attention.other_bytes, .score_flops = attention.score_flops};
  cost.leaves.push_back({.part = StepPart::kAttentionCache,
                         .count = layers,
                         .each_us = terms[2],
                         .work = cache,
                         .floor_each_us = floor_us(family, cache, peaks_),
                         .family = family});
  add_ffn(cost, tokens);
  add_collectives(cost, tokens);
  const double layer_us = sum_us(cost) / layers;
  add(cost,
      StepPart::kHead,
      1,
      OpFamily::kGemmBf16,
      gemm_work({tokens.rank, real(config_.vocab_size) / real(layout.tp), real(config_.hidden_size)}, 2));
  const double head_us = cost.leaves.back().each_us;
  if (rank_.two_batch_overlap) {
    for (StepLeaf& leaf : cost.leaves) {
      leaf.count *= halves;
    }
    constexpr std::array kExchange{StepPart::kDispatch, StepPart::kCombine};
    const double exchange_us = sum_of(cost, kExchange);
    add_plain(cost, StepPart::kHidden, -std::min(exchange_us, sum_us(cost) - exchange_us));
  }
  finish_decode(cost, real(rank_.mtp_depth) * (layer_us + head_us));
  return cost;
}

StepCost StepModel::prefill(double num_cached, double new_tokens) const {
  CHECK(new_tokens > 0);
  const auto& layout = rank_.layout;
  const double replicas = real(std::max<int64_t>(1, layout.ep / layout.tp));
  const Tokens tokens{.rank = new_tokens, .group = new_tokens * replicas, .is_prefill = true};
  const double heads = real(config_.num_attention_heads) / real(layout.tp);
  const double layers = real(config_.num_hidden_layers);
  const double weights = attention_weights(config_, heads);
  StepCost cost;
  add(cost,
      StepPart::kAttentionProjections,
      layers,
      OpFamily::kGemmFp8,
      {.weight_bytes = weights, .weight_flops = 2 * new_tokens * weights});
  add(cost,
      StepPart::kAttentionCache,
      layers,
      OpFamily::kPrefillScores,
      prefill_scores_work(config_, heads, num_cached, new_tokens));
  if (hardware_.name == "b300") {
    cost.leaves.back().each_us *= engine_.b300_scores_factor;
  }
  add_ffn(cost, tokens);
  add_collectives(cost, tokens);
  add_plain(cost, StepPart::kInStream, (engine_.prefill_factor - 1) * sum_us(cost));
  add_totals(cost);
  return cost;
}

}  // namespace simulator
