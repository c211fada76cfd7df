#include "simulator/moe_layer.hpp"

#include <algorithm>
#include <cmath>

#include "model/check.hpp"
#include "simulator/expert_sampler.hpp"
#include "simulator/max_of_normals.hpp"

namespace simulator {
namespace {

constexpr int64_t kCountStream = 2;

AllToAll all_to_all_of(const MoeDeployment& deployment) {
  return AllToAll({.hardware = deployment.hardware,
                   .backend = deployment.backend,
                   .link = deployment.link,
                   .num_ranks = deployment.num_ranks,
                   .hidden_size = deployment.hidden_size,
                   .num_experts = deployment.router.num_experts});
}

const MoeDeployment& checked(const MoeDeployment& deployment, const MoeLayer& layer) {
  if (deployment.num_ranks < 1 || !(deployment.tokens_per_rank * static_cast<double>(deployment.num_ranks) >= 0.5)) {
    model::throw_input_error("{} ranks with {} tokens each: expected at least one rank and one token",
                             deployment.num_ranks,
                             deployment.tokens_per_rank);
  }
  CHECK(deployment.expert_time);
  CHECK_EQ(static_cast<int64_t>(layer.popularity.size()), deployment.router.num_experts);
  CHECK_EQ(layer.placement.num_experts, deployment.router.num_experts);
  CHECK_EQ(layer.placement.num_ranks, deployment.num_ranks);
  return deployment;
}

// Mean of a slot's rows rounded up to whole tiles, rows being normal: the sum over tiles of the chance that it is needed.
double padded_mean(double mean, double stddev, double active_chance) {
  double tiles = active_chance;
  for (double below = kTileRows; below < mean + 6 * stddev; below += kTileRows) {
    tiles += stddev > 0 ? 0.5 * std::erfc((below - mean) / (stddev * std::sqrt(2.0))) : 1.0;
  }
  return static_cast<double>(kTileRows) * tiles;
}

struct ExchangeTime {
  double dispatch_us = 0;
  double combine_us = 0;
};

// A fused kernel has no combine of its own: what it adds to the products stands under dispatch.
ExchangeTime exchange_time(const MoeDeployment& deployment,
                           const AllToAll& all_to_all,
                           const TierCopies& copies,
                           double compute_us) {
  if (deployment.backend == AllToAllBackend::kFused) {
    return {.dispatch_us = all_to_all.fused_us(copies, compute_us)};
  }
  return {.dispatch_us = all_to_all.dispatch_us(copies), .combine_us = all_to_all.combine_us(copies)};
}

// Samples of one layer, rank by rank.
class RankSampler {
 public:
  RankSampler(const MoeDeployment& deployment, const MoeLayer& layer, int64_t layer_idx, uint64_t seed)
      : deployment_(deployment),
        layer_(layer),
        layer_idx_(layer_idx),
        seed_(seed),
        all_to_all_(all_to_all_of(checked(deployment, layer))),
        traffic_(all_to_all_,
                 deployment.backend,
                 deployment.router,
                 layer.placement,
                 deployment.tokens_per_rank,
                 layer.popularity,
                 seed) {}

  [[nodiscard]] std::vector<MoeRankTime> ranks(int64_t step) const {
    CounterRandom random(seed_, kCountStream, layer_idx_, step);
    const std::vector<int64_t> counts =
        sample_expert_counts(layer_.popularity, traffic_.num_tokens(), deployment_.router.experts_per_token, random);
    const std::vector<RankLoad> loads = traffic_.loads(counts, step);
    std::vector<MoeRankTime> times(loads.size());
    std::vector<double> rows(loads.size());
    for (size_t rank = 0; rank < loads.size(); ++rank) {
      times[rank] = {.load = loads[rank], .compute_us = deployment_.expert_time(loads[rank])};
      rows[rank] = static_cast<double>(loads[rank].num_tokens);
    }
    if (deployment_.has_all_to_all) {
      const std::vector<TierCopies> copies = traffic_.copies(rows);
      for (size_t rank = 0; rank < loads.size(); ++rank) {
        const ExchangeTime exchange = exchange_time(deployment_, all_to_all_, copies[rank], times[rank].compute_us);
        times[rank].dispatch_us = exchange.dispatch_us;
        times[rank].combine_us = exchange.combine_us;
      }
    }
    return times;
  }

 private:
  const MoeDeployment& deployment_;
  const MoeLayer& layer_;
  int64_t layer_idx_ = 0;
  uint64_t seed_ = 0;
  AllToAll all_to_all_;
  LayerTraffic traffic_;
};

}  // namespace

// The mean of each part, and the slowest of dispatch with compute and of combine.
MoeLayerTime layer_time(const std::vector<MoeRankTime>& ranks) {
  MoeLayerTime sum;
  double slowest_before_us = 0;
  double slowest_combine_us = 0;
  for (const MoeRankTime& rank : ranks) {
    sum.mean_rows += static_cast<double>(rank.load.num_tokens);
    sum.mean_active_experts += static_cast<double>(rank.load.num_active_experts);
    sum.dispatch_us += rank.dispatch_us;
    sum.compute_us += rank.compute_us;
    sum.combine_us += rank.combine_us;
    slowest_before_us = std::max(slowest_before_us, rank.dispatch_us + rank.compute_us);
    slowest_combine_us = std::max(slowest_combine_us, rank.combine_us);
  }
  const auto num_ranks = static_cast<double>(ranks.size());
  MoeLayerTime time{.dispatch_us = sum.dispatch_us / num_ranks,
                    .compute_us = sum.compute_us / num_ranks,
                    .combine_us = sum.combine_us / num_ranks,
                    .mean_rows = sum.mean_rows / num_ranks,
                    .mean_active_experts = sum.mean_active_experts / num_ranks};
  // Rounding may leave a tiny negative number where all ranks are equal.
  time.wait_us = std::max(0.0, slowest_before_us + slowest_combine_us - time.total_us());
  return time;
}

std::vector<MoeRankTime> sample_moe_ranks(
    const MoeDeployment& deployment, const MoeLayer& layer, int64_t layer_idx, int64_t step, uint64_t seed) {
  return RankSampler(deployment, layer, layer_idx, seed).ranks(step);
}

std::vector<MoeLayerTime> sample_moe_layer(
    const MoeDeployment& deployment, const MoeLayer& layer, int64_t layer_idx, int64_t num_steps, uint64_t seed) {
  const RankSampler sampler(deployment, layer, layer_idx, seed);
  std::vector<MoeLayerTime> samples;
  samples.reserve(static_cast<size_t>(num_steps));
  for (int64_t step = 0; step < num_steps; ++step) {
    samples.push_back(layer_time(sampler.ranks(step)));
  }
  return samples;
}

std::vector<MoeLayerTime> sample_moe_step(const MoeDeployment& deployment,
                                          const std::vector<MoeLayer>& layers,
                                          int64_t num_steps,
                                          uint64_t seed) {
  std::vector<MoeLayerTime> steps(static_cast<size_t>(num_steps));
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const std::vector<MoeLayerTime> samples =
        sample_moe_layer(deployment, layers[layer], static_cast<int64_t>(layer), num_steps, seed);
    for (size_t i = 0; i < samples.size(); ++i) {
      steps[i].dispatch_us += samples[i].dispatch_us;
      steps[i].compute_us += samples[i].compute_us;
      steps[i].combine_us += samples[i].combine_us;
      steps[i].wait_us += samples[i].wait_us;
      steps[i].mean_rows += samples[i].mean_rows;
      steps[i].mean_active_experts += samples[i].mean_active_experts;
    }
  }
  return steps;
}

MoeLayerEstimate estimate_moe_layer(const MoeDeployment& deployment, const MoeLayer& layer, uint64_t seed) {
  const AllToAll all_to_all = all_to_all_of(checked(deployment, layer));
  const LayerTraffic traffic(all_to_all,
                             deployment.backend,
                             deployment.router,
                             layer.placement,
                             deployment.tokens_per_rank,
                             layer.popularity,
                             seed);
  const Placement& placement = layer.placement;
  const auto num_ranks = static_cast<size_t>(placement.num_ranks);
  std::vector<double> copies_of(layer.popularity.size(), 0.0);
  for (const int64_t expert : placement.expert_of_slot) {
    if (expert != Placement::kEmptySlot) {
      copies_of[static_cast<size_t>(expert)] += 1;
    }
  }
  const auto num_tokens = static_cast<double>(traffic.num_tokens());
  const auto k = static_cast<double>(deployment.router.experts_per_token);
  std::vector<double> rows(num_ranks, 0.0);
  std::vector<double> variance(num_ranks, 0.0);
  std::vector<double> active(num_ranks, 0.0);
  std::vector<double> active_variance(num_ranks, 0.0);
  std::vector<double> padding(num_ranks, 0.0);
  for (int64_t slot = 0; slot < placement.num_slots(); ++slot) {
    const int64_t id = placement.expert_of_slot[static_cast<size_t>(slot)];
    if (id == Placement::kEmptySlot) {
      continue;
    }
    const auto expert = static_cast<size_t>(id);
    const auto rank = static_cast<size_t>(placement.rank_of_slot(slot));
    const double chosen = std::min(1.0, k * layer.popularity[expert]);  // by one token
    const double share = 1 / copies_of[expert];
    const double slot_rows = num_tokens * chosen * share;
    const double slot_variance = slot_rows * (1 - layer.popularity[expert]) * share;
    rows[rank] += slot_rows;
    variance[rank] += slot_variance;
    const double idle = std::pow(1 - chosen * share, num_tokens);
    active[rank] += 1 - idle;
    active_variance[rank] += idle * (1 - idle);
    padding[rank] += padded_mean(slot_rows, std::sqrt(slot_variance), 1 - idle) - slot_rows;
  }
  const auto compute_us = [&](size_t rank, double rank_rows, double rank_active) {
    // Between whole numbers the time is interpolated.
    const auto at = [&](double whole_rows, double whole_active) {
      RankLoad load{.num_tokens = static_cast<int64_t>(whole_rows),
                    .num_active_experts = static_cast<int64_t>(whole_active)};
      load.rows_per_expert = whole_active > 0 ? whole_rows / whole_active : 0;
      load.padded_rows = static_cast<int64_t>(std::round(whole_rows + padding[rank]));
      return deployment.expert_time(load);
    };
    const double low = std::floor(rank_active);
    const double part = rank_active - low;
    const double whole_rows = std::max(0.0, std::round(rank_rows));
    return (1 - part) * at(whole_rows, low) + (part > 0 ? part * at(whole_rows, low + 1) : 0.0);
  };
  std::vector<double> spread_rows = rows;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    spread_rows[rank] += std::sqrt(variance[rank]);
  }
  const std::vector<TierCopies> copies = traffic.copies(rows);
  MoeLayerEstimate estimate;
  std::vector<Normal> before;
  std::vector<Normal> after;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    // One standard deviation more rows on this rank alone.
    std::vector<double> shifted = rows;
    shifted[rank] = spread_rows[rank];
    const TierCopies more = traffic.copies(shifted)[rank];
    const double compute = compute_us(rank, rows[rank], active[rank]);
    const auto [dispatch, combine] = exchange_time(deployment, all_to_all, copies[rank], compute);
    estimate.mean.dispatch_us += dispatch / static_cast<double>(num_ranks);
    estimate.mean.compute_us += compute / static_cast<double>(num_ranks);
    estimate.mean.combine_us += combine / static_cast<double>(num_ranks);
    const double more_compute = compute_us(rank, spread_rows[rank], active[rank]);
    const ExchangeTime more_exchange = exchange_time(deployment, all_to_all, more, more_compute);
    const double rows_stddev = more_exchange.dispatch_us - dispatch + more_compute - compute;
    // No more experts than slots can become active, so the upper side is narrower than the lower one.
    const double spread = std::sqrt(active_variance[rank]);
    const double most = std::min(active[rank] + spread, static_cast<double>(placement.slots_per_rank()));
    const double least = std::max(active[rank] - spread, 0.0);
    const double active_stddev = 0.5 * (compute_us(rank, rows[rank], most) - compute_us(rank, rows[rank], least));
    before.push_back({.mean = dispatch + compute, .stddev = std::hypot(rows_stddev, active_stddev)});
    after.push_back({.mean = combine, .stddev = more_exchange.combine_us - combine});
  }
  const Normal slowest_before = max_of_normals(before);
  const Normal slowest_after = max_of_normals(after);
  estimate.mean.wait_us = std::max(0.0, slowest_before.mean + slowest_after.mean - estimate.mean.total_us());
  // The same hot rank makes both, so their deviations add.
  estimate.total_stddev_us = slowest_before.stddev + slowest_after.stddev;
  return estimate;
}

}  // namespace simulator
