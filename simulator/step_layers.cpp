// What stands behind attention in a layer: feed-forward parts, experts with their exchange, and the collectives of tensor and pipeline
// parallelism.
#include <algorithm>

#include "simulator/network_all_reduce.hpp"
#include "simulator/op_call.hpp"
#include "simulator/op_work.hpp"
#include "simulator/step_model.hpp"

namespace simulator {
namespace {

double real(int64_t value) {
  return static_cast<double>(value);
}

constexpr double kBf16Bytes = 2;

}  // namespace

MoeCurve* StepModel::curve_of(MoeCurves& curves, AllToAllBackend backend) const {
  const double expert_tp = real(rank_.layout.expert_tp());
  const ExpertTime expert_time = [chosen = fit_of(OpFamily::kExperts), expert_tp, config = config_, peaks = peaks_](
                                     const RankLoad& load) {
    return op_time(chosen, experts_call(config, real(load.num_active_experts), real(load.num_tokens), expert_tp), peaks)
        .time_us;
  };
  std::vector<double> key = fit_of(OpFamily::kExperts).fit.constants;
  key.insert(key.end(), {expert_tp, expert_weights(config_), fit_of(OpFamily::kExperts).table != nullptr ? 1.0 : 0.0});
  Router router{.num_experts = config_.n_routed_experts,
                .experts_per_token = config_.num_experts_per_tok,
                .num_groups = config_.n_group,
                .kept_groups = config_.topk_group};
  const int64_t num_always = rank_.num_placed_experts(config_) - config_.n_routed_experts;
  if (num_always > 0) {
    // The shared expert is in no group.
    router = {.num_experts = router.num_experts + num_always,
              .experts_per_token = router.experts_per_token + num_always};
  }
  return &curves.curve(
      {.hardware = hardware_,
       .backend = backend,
       .num_ranks = rank_.layout.ep,
       .has_all_to_all = rank_.is_spread(),
       .hidden_size = config_.hidden_size,
       .router = router,
       .expert_time = expert_time},
      {.num_slots = router.num_experts + rank_.redundant_experts, .num_always = num_always, .eplb = rank_.eplb},
      key);
}

double StepModel::experts_fixed_us() const {
  const ChosenFit& chosen = fit_of(OpFamily::kExperts);
  return chosen.table != nullptr && rank_.layout.expert_tp() == 1 ? 0 : chosen.fit.constants.front();
}

void StepModel::add_moe(StepCost& cost, const Tokens& tokens) const {
  MoeCurve& curve = *(tokens.is_prefill ? prefill_curve_ : decode_curve_);
  const MoeLayerTime layer = curve.at(tokens.group);
  const double layers = real(num_moe_layers_);
  const double fixed_us = experts_fixed_us();
  const double expert_tp = real(rank_.layout.expert_tp());
  const OpWork work = experts_work(config_, layer.mean_active_experts, layer.mean_rows, expert_tp);
  if (fixed_us > 0) {
    cost.leaves.push_back(
        {.part = StepPart::kExpertsFixed, .count = layers, .each_us = fixed_us, .family = OpFamily::kExperts});
  }
  cost.leaves.push_back({.part = StepPart::kExperts,
                         .count = layers,
                         .each_us = layer.compute_us - fixed_us,
                         .work = work,
                         .floor_each_us = floor_us(OpFamily::kExperts, work, peaks_),
                         .family = OpFamily::kExperts,
                         .answer = op_time(fit_of(OpFamily::kExperts),
                                           experts_call(config_, layer.mean_active_experts, layer.mean_rows, expert_tp),
                                           peaks_)
                                       .answer});
  constexpr std::string_view kSampled = "sampled routing, docs/skew.md";
  if (curve.deployment().has_all_to_all) {
    const AllToAll& all_to_all = curve.all_to_all();
    const double ranks = real(rank_.layout.ep);
    const TierCopies copies = even_copies(all_to_all,
                                          curve.deployment().backend,
                                          rank_.layout.ep,
                                          curve.deployment().router.experts_per_token,
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
  const double dense_layers = real(config_.num_hidden_layers - num_moe_layers_);
  const double hidden = real(config_.hidden_size);
  const double tp = real(rank_.layout.tp);
  if (num_moe_layers_ > 0) {
    const double moe_layers = real(num_moe_layers_);
    add(cost, StepPart::kRouter, moe_layers, gemm_call({tokens.rank, real(config_.n_routed_experts), hidden}, 2));
    add_moe(cost, tokens);
    if (rank_.shared_place() != SharedExpertPlace::kRouted) {
      // Fused with the routed experts or beside them on another stream: no fixed time of its own.
      const bool is_whole = rank_.shared_place() == SharedExpertPlace::kReplicated;
      const double shared = real(config_.n_shared_experts);
      const double rows = is_whole ? tokens.rank / tp : tokens.rank;
      add(cost,
          StepPart::kSharedExpert,
          moe_layers,
          {.family = OpFamily::kExperts, .work = experts_work(config_, shared, shared * rows, is_whole ? 1 : tp)});
      cost.leaves.back().each_us -= fit_of(OpFamily::kExperts).fit.constants.front();
    }
  }
  if (dense_layers > 0) {
    // Over more ranks than tp the tokens of several DP ranks meet.
    const double ranks = real(rank_.dense_ranks());
    const double rows = tokens.rank * std::max(1.0, ranks / tp);
    const double width = real(config_.intermediate_size) / ranks;
    add(cost, StepPart::kDenseFfn, dense_layers, gemm_call({rows, 2 * width, hidden}, 1));
    add(cost, StepPart::kDenseFfn, dense_layers, gemm_call({rows, hidden, width}, 1));
  }
}

void StepModel::add_all_reduce(StepCost& cost, double count, double message_bytes, int64_t num_ranks) const {
  if (count == 0 || num_ranks == 1) {
    return;
  }
  const int64_t inside = std::min(num_ranks, static_cast<int64_t>(hardware_.nvlink_domain_gpus.value));
  const OpTime time = op_time(fit_of(OpFamily::kAllReduce), all_reduce_call(message_bytes, inside), peaks_);
  const double between_us =
      network_all_reduce_us(message_bytes, {.num_ranks = num_ranks, .ranks_per_domain = inside}, peaks_);
  cost.leaves.push_back({.part = StepPart::kAllReduce,
                         .count = count,
                         .each_us = time.time_us + between_us,
                         .work = {.message_bytes = message_bytes, .num_ranks = num_ranks},
                         .floor_each_us = message_bytes / peaks_.nvlink,
                         .family = OpFamily::kAllReduce,
                         .answer = time.answer});
}

void StepModel::add_collectives(StepCost& cost, const Tokens& tokens) const {
  const auto& layout = rank_.layout;
  const double layers = real(config_.num_hidden_layers);
  const double moe_layers = real(num_moe_layers_);
  const double bytes_of_rank = tokens.rank * real(config_.hidden_size) * kBf16Bytes;
  const int64_t dense_ranks = rank_.dense_ranks();
  // Behind attention, and behind the FFN of layers whose experts no all-to-all joins.
  const double dense_alike = dense_ranks == layout.tp ? layers - moe_layers : 0;
  add_all_reduce(cost, layers + dense_alike + (rank_.is_spread() ? 0 : moe_layers), bytes_of_rank, layout.tp);
  if (dense_ranks != layout.tp) {
    // Gathering the tokens of several DP ranks and scattering their sums moves as much as an all-reduce of them.
    const double gathered = bytes_of_rank * std::max(1.0, real(dense_ranks) / real(layout.tp));
    add_all_reduce(cost, layers - moe_layers, gathered, dense_ranks);
  }
  if (layout.pp > 1) {
    const double bytes = bytes_of_rank / real(layout.tp);
    cost.leaves.push_back({.part = StepPart::kPipelineSend,
                           .count = real(layout.pp - 1),
                           .each_us = network_send_us(bytes, peaks_),
                           .work = {.network_bytes = bytes},
                           .floor_each_us = bytes / peaks_.network});
  }
}

}  // namespace simulator
