#include "simulator/moe_curve.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/check.hpp"
#include "simulator/eplb.hpp"

namespace simulator {
namespace {

// Popularity differs from layer to layer: the mean fullest rank of 24 layers is known to about 2 %.
constexpr int64_t kGridLayers = 24;

double real(int64_t value) {
  return static_cast<double>(value);
}

AllToAllSetup setup_of(const MoeDeployment& deployment) {
  return {.hardware = deployment.hardware,
          .backend = deployment.backend,
          .link = deployment.link,
          .num_ranks = deployment.num_ranks,
          .hidden_size = deployment.hidden_size,
          .num_experts = deployment.router.num_experts};
}

// Token counts of the grid: 1, 2, 3, 4, 6, 8, 11, ...: sqrt(2) apart.
int64_t grid_tokens(int64_t step) {
  return std::llround(std::exp2(0.5 * real(step)));
}

MoeLayerTime blend(const MoeLayerTime& low, const MoeLayerTime& high, double part) {
  MoeLayerTime time;
  for (double MoeLayerTime::*member : {&MoeLayerTime::dispatch_us,
                                       &MoeLayerTime::compute_us,
                                       &MoeLayerTime::combine_us,
                                       &MoeLayerTime::wait_us,
                                       &MoeLayerTime::mean_rows,
                                       &MoeLayerTime::mean_active_experts}) {
    time.*member = (1 - part) * low.*member + part * high.*member;
  }
  return time;
}

}  // namespace

MoeCurve::MoeCurve(MoeDeployment deployment, const RoutingAssumptions& routing, const ExpertSpread& spread)
    : deployment_(std::move(deployment)), routing_(routing), spread_(spread), all_to_all_(setup_of(deployment_)) {
  if (routing_.skew.family != SkewFamily::kPowerLaw) {
    layers_ = layers(1, kGridLayers);
  }
}

// Experts that every token chooses take an equal share each of its copies.
std::vector<double> MoeCurve::with_always(std::vector<double> routed) const {
  if (spread_.num_always > 0) {
    const double each_always = 1 / real(deployment_.router.experts_per_token);
    for (double& share : routed) {
      share *= 1 - real(spread_.num_always) * each_always;
    }
    routed.resize(static_cast<size_t>(deployment_.router.num_experts), each_always);
  }
  return routed;
}

std::vector<MoeLayer> MoeCurve::layers(int64_t num_tokens, int64_t num_layers) const {
  const Router& router = deployment_.router;
  const int64_t ranks = deployment_.num_ranks;
  std::vector<MoeLayer> layers;
  for (const std::vector<double>& routed : model_popularity(routing_.skew,
                                                            router.num_experts - spread_.num_always,
                                                            router.experts_per_token - spread_.num_always,
                                                            num_tokens,
                                                            num_layers,
                                                            routing_.layer_correlation,
                                                            routing_.seed)) {
    const auto placed = [&] {
      const auto layer = std::ssize(layers);
      return eplb_placement(with_always(seen_popularity(routed, routing_.seen_correlation, layer, routing_.seed)),
                            eplb_shape(spread_.num_slots,
                                       router.num_groups,
                                       ranks,
                                       static_cast<int64_t>(deployment_.hardware.nvlink_domain_gpus.value)));
    };
    layers.push_back({.popularity = with_always(routed),
                      .placement = spread_.eplb
                                       ? placed()
                                       : contiguous_placement(router.num_experts, ranks, spread_.num_slots, true)});
  }
  return layers;
}

const MoeLayerTime& MoeCurve::grid_point(int64_t num_tokens) {
  const auto known = known_.find(num_tokens);
  if (known != known_.end()) {
    return known->second;
  }
  MoeDeployment deployment = deployment_;
  deployment.tokens_per_rank = real(num_tokens) / real(deployment.num_ranks);
  const auto sampled =
      sample_moe_step(deployment, layers_.empty() ? layers(num_tokens, kGridLayers) : layers_, 1, routing_.seed);
  return known_.emplace(num_tokens, blend({}, sampled.front(), 1 / real(kGridLayers))).first->second;
}

MoeLayerTime MoeCurve::at(double num_tokens) {
  const double tokens = std::max(1.0, num_tokens);
  auto step = static_cast<int64_t>(2 * std::log2(tokens));
  while (real(grid_tokens(step)) > tokens) {
    --step;
  }
  while (real(grid_tokens(step + 1)) <= tokens) {
    ++step;
  }
  const double low = real(grid_tokens(step));
  if (low == tokens) {
    return grid_point(grid_tokens(step));
  }
  const double part = (tokens - low) / (real(grid_tokens(step + 1)) - low);
  const MoeLayerTime below = grid_point(grid_tokens(step));
  return blend(below, grid_point(grid_tokens(step + 1)), part);
}

MoeDeployment MoeCurve::with_tokens(double num_tokens) const {
  MoeDeployment deployment = deployment_;
  deployment.tokens_per_rank = std::max(1.0, std::round(num_tokens)) / real(deployment.num_ranks);
  return deployment;
}

std::vector<MoeLayerTime> MoeCurve::sampled_steps(double num_tokens, int64_t num_layers, int64_t num_steps) const {
  return sample_moe_step(
      with_tokens(num_tokens), layers(std::llround(num_tokens), num_layers), num_steps, routing_.seed);
}

std::vector<std::vector<MoeRankTime>> MoeCurve::sampled_ranks(double num_tokens, int64_t num_layers) const {
  const MoeDeployment deployment = with_tokens(num_tokens);
  std::vector<std::vector<MoeRankTime>> ranks;
  for (const MoeLayer& layer : layers(std::llround(num_tokens), num_layers)) {
    ranks.push_back(sample_moe_ranks(deployment, layer, static_cast<int64_t>(ranks.size()), 0, routing_.seed));
  }
  return ranks;
}

MoeCurve& MoeCurves::curve(MoeDeployment deployment,
                           const ExpertSpread& spread,
                           const std::vector<double>& expert_constants) {
  deployment.link = routing_.link;
  const Hardware& hardware = deployment.hardware;
  std::vector<double> key = expert_constants;
  for (const Figure& figure : {hardware.bf16_dense_tflops,
                               hardware.fp8_dense_tflops.value_or(Figure{}),
                               hardware.memory_gb_per_s,
                               hardware.nvlink_gb_per_s,
                               hardware.nvlink_domain_gpus,
                               hardware.nic_gb_per_s}) {
    key.push_back(figure.value);
  }
  for (const int64_t value : {static_cast<int64_t>(deployment.backend),
                              int64_t{deployment.has_all_to_all},
                              deployment.num_ranks,
                              deployment.hidden_size,
                              deployment.router.num_experts,
                              deployment.router.experts_per_token,
                              deployment.router.num_groups,
                              deployment.router.kept_groups,
                              spread.num_slots,
                              spread.num_always,
                              int64_t{spread.eplb}}) {
    key.push_back(real(value));
  }
  std::unique_ptr<MoeCurve>& curve = curves_[key];
  if (curve == nullptr) {
    curve = std::make_unique<MoeCurve>(std::move(deployment), routing_, spread);
  }
  return *curve;
}

}  // namespace simulator
