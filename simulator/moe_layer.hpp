// How long one MoE layer takes: dispatch, the experts, combine, and waiting for the slowest rank. Routing is sampled, so the answer
// is a distribution; a step is the sum over layers of each layer's slowest rank, never the slowest rank of the sums.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "simulator/all_to_all.hpp"
#include "simulator/hardware.hpp"
#include "simulator/layer_traffic.hpp"
#include "simulator/placement.hpp"
#include "simulator/routing.hpp"

namespace simulator {

// One layer of one step. dispatch, compute and combine are what the average rank spends working; wait_us is what the slowest rank
// adds to that. The four add up to the time of the layer.
struct MoeLayerTime {
  double dispatch_us = 0;
  double compute_us = 0;
  double combine_us = 0;
  double wait_us = 0;
  // What the average rank works on.
  double mean_rows = 0;
  double mean_active_experts = 0;

  [[nodiscard]] double total_us() const { return dispatch_us + compute_us + combine_us + wait_us; }
};

// Time of a rank's experts (gate, up, activation, down) in us. Must not fall when more tokens or active experts come.
using ExpertTime = std::function<double(const RankLoad&)>;

struct MoeDeployment {
  Hardware hardware;
  AllToAllBackend backend = AllToAllBackend::kDeepEpLowLatency;
  NetworkLink link = NetworkLink::kInfiniBand;
  int64_t num_ranks = 0;       // EP size
  double tokens_per_rank = 0;  // the mean of the ranks' own tokens; a step has num_ranks * tokens_per_rank, rounded
  bool has_all_to_all = true;  // false: every rank has all tokens, as in a TP group
  int64_t hidden_size = 7168;
  Router router;
  ExpertTime expert_time;
};

// One layer's part of it.
struct MoeLayer {
  std::vector<double> popularity;  // [num_experts], share of the token copies; sums to 1
  Placement placement;
};

// What one rank works in one layer of one step.
struct MoeRankTime {
  RankLoad load = {};
  double dispatch_us = 0;
  double compute_us = 0;
  double combine_us = 0;
};

// The layer that these ranks make together: means of their parts, and what the slowest adds.
MoeLayerTime layer_time(const std::vector<MoeRankTime>& ranks);

// Step `step` of sample_moe_layer(), rank by rank. [num_ranks]
std::vector<MoeRankTime> sample_moe_ranks(
    const MoeDeployment& deployment, const MoeLayer& layer, int64_t layer_idx, int64_t step, uint64_t seed);

// `num_steps` samples of the layer. Sample i depends on (seed, layer_idx, i) alone: the same numbers for every placement and
// back end that one compares. Throws InputError for a deployment that cannot be.
std::vector<MoeLayerTime> sample_moe_layer(
    const MoeDeployment& deployment, const MoeLayer& layer, int64_t layer_idx, int64_t num_steps, uint64_t seed);

// The same without sampling: rows of ranks as independent normal variables. Means of the parts, and of the total the mean and
// standard deviation (an upper estimate, up to three times too wide) of the sum of two maxima over ranks. Held against the samples by tests/simulator/moe_layer_test.cpp.
struct MoeLayerEstimate {
  MoeLayerTime mean;
  double total_stddev_us = 0;
};
MoeLayerEstimate estimate_moe_layer(const MoeDeployment& deployment, const MoeLayer& layer, uint64_t seed);

// All layers: sample i is the sum over the layers of sample i.
std::vector<MoeLayerTime> sample_moe_step(const MoeDeployment& deployment,
                                          const std::vector<MoeLayer>& layers,
                                          int64_t num_steps,
                                          uint64_t seed);

}  // namespace simulator
