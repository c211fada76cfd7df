// What `dsv3-sim skew` prints: how unequal the ranks of an expert-parallel group are, and what that costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/all_to_all.hpp"
#include "simulator/described_model.hpp"
#include "simulator/moe_layer.hpp"
#include "simulator/skew.hpp"
#include "simulator/table.hpp"

namespace simulator {

struct SkewOptions {
  Hardware hardware;
  Skew skew;
  double layer_correlation = 0;
  std::vector<int64_t> eps{32, 64};
  std::vector<int64_t> batches{32, 128};  // tokens of a rank
  std::optional<int64_t> num_redundant =
      {};                  // slots beyond the experts; unset: 32, rounded up to a multiple of the ranks, for EPLB alone
  bool is_padded = false;  // without redundancy, leave slots empty where experts do not divide
  int64_t num_steps = 100;
  uint64_t seed = 1;
  AllToAllBackend backend = AllToAllBackend::kDeepEpLowLatency;
  NetworkLink link = NetworkLink::kInfiniBand;
  std::string kernel = "sglang-decode";
  double stale_correlation = 1;               // of the load that EPLB saw with the one that comes
  std::vector<int64_t> rebalance_steps = {};  // intervals to compare; empty: no table
  double drift_steps = 2000;                  // steps in which the correlation of a load with itself falls to 1/e
  std::vector<double> gammas = {};            // of the bias control; empty: no table
  bool with_local_search = false;  // a row with the best placement that swapping slots finds from EPLB's global one
  int64_t num_hosted = 0;          // above 0: a row with the V3 report's dynamic redundancy, so many experts on a rank
};

// Tables `skew`; `rebalance` and `bias` when asked for. Throws InputError: a dense model, experts that do not divide over the ranks
// without redundancy or padding (naming what would work), options out of range.
std::vector<Table> skew_tables(const DescribedModel& described, const SkewOptions& options);

// EPLB's placement of every MoE layer for the first EP size of the options, for placement_files.hpp.
std::vector<Placement> eplb_layers(const DescribedModel& described, const SkewOptions& options);

Router router_of(const DescribedModel& described);

// Numbers in one routed expert: of the FP8 catalogue, all tensors of expert 0 of one layer.
double expert_weights(const DescribedModel& described);

}  // namespace simulator
