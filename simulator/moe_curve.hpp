// Time of a MoE layer by the number of tokens, for one way to spread the experts: what a step looks up. Routing is sampled
// (moe_layer.hpp) at a grid of token counts when they are first asked for; between them the parts are interpolated.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "simulator/moe_layer.hpp"
#include "simulator/skew.hpp"

namespace simulator {

struct ExpertSpread {
  int64_t num_slots = 0;   // experts and redundant copies, a multiple of the ranks
  int64_t num_always = 0;  // of the router's experts the last ones, which every token chooses
  bool eplb = false;       // placed by load; else in order
};

// What is assumed of routing, for all layouts that are compared.
struct RoutingAssumptions {
  Skew skew = {};
  double layer_correlation = 0;  // of a layer's hot experts with those of the layer before
  double seen_correlation = 1;   // of the load that EPLB saw with the one that comes
  NetworkLink link = NetworkLink::kInfiniBand;
  uint64_t seed = 1;
};

class MoeCurve {
 public:
  // The deployment's tokens_per_rank is not used. Throws InputError for a spread or a back end that cannot be.
  MoeCurve(MoeDeployment deployment, const RoutingAssumptions& routing, const ExpertSpread& spread);

  // The mean layer. num_tokens: of all ranks together; below 1 counts as 1.
  [[nodiscard]] MoeLayerTime at(double num_tokens);
  // `num_steps` samples of the sum over `num_layers` layers.
  [[nodiscard]] std::vector<MoeLayerTime> sampled_steps(double num_tokens, int64_t num_layers, int64_t num_steps) const;

  // One step of those, rank by rank. [num_layers][ranks]
  [[nodiscard]] std::vector<std::vector<MoeRankTime>> sampled_ranks(double num_tokens, int64_t num_layers) const;

  [[nodiscard]] const AllToAll& all_to_all() const { return all_to_all_; }
  [[nodiscard]] const MoeDeployment& deployment() const { return deployment_; }

 private:
  [[nodiscard]] std::vector<double> with_always(std::vector<double> routed) const;
  [[nodiscard]] std::vector<MoeLayer> layers(int64_t num_tokens, int64_t num_layers) const;
  [[nodiscard]] MoeDeployment with_tokens(double num_tokens) const;
  [[nodiscard]] const MoeLayerTime& grid_point(int64_t num_tokens);

  MoeDeployment deployment_;
  RoutingAssumptions routing_;
  ExpertSpread spread_;
  AllToAll all_to_all_;
  std::vector<MoeLayer> layers_;  // of the grid; the power law's depend on the tokens and are drawn each time
  std::map<int64_t, MoeLayerTime> known_;
};

// Curves by what they depend on, so that layouts, batches and engines share them. Not for several threads.
class MoeCurves {
 public:
  explicit MoeCurves(RoutingAssumptions routing = {}) : routing_(std::move(routing)) {}
  [[nodiscard]] const RoutingAssumptions& routing() const { return routing_; }

  // `expert_constants`: whatever deployment.expert_time depends on beside the hardware and the router.
  MoeCurve& curve(MoeDeployment deployment, const ExpertSpread& spread, const std::vector<double>& expert_constants);

 private:
  RoutingAssumptions routing_;
  std::map<std::vector<double>, std::unique_ptr<MoeCurve>> curves_;
};

}  // namespace simulator
