#include "simulator/traffic.hpp"

#include "model/check.hpp"

namespace simulator {

CopyBytes copy_bytes(int64_t hidden_size) {
  constexpr int64_t kScaleLen = 128;
  constexpr int64_t kScaleBytes = 4;
  return {.dispatch = hidden_size,
          .dispatch_scales = (hidden_size + kScaleLen - 1) / kScaleLen * kScaleBytes,
          .combine = 2 * hidden_size};
}

int64_t ring_allreduce_bytes(int64_t payload, int64_t num_ranks) {
  CHECK(num_ranks > 0);
  return 2 * (num_ranks - 1) * ((payload + num_ranks - 1) / num_ranks);
}

CopySpread copy_spread(const Router& router, int64_t ep, int64_t gpus_per_node) {
  const std::vector<Node> nodes = expert_nodes(router, ep, gpus_per_node);
  CopySpread spread{.ep = ep,
                    .num_nodes = static_cast<int64_t>(nodes.size()),
                    .off_rank_frac = 1 - 1 / static_cast<double>(ep),
                    .off_node_frac = 1,
                    .most_nodes = most_nodes(router, ep, gpus_per_node)};
  for (const Node& node : nodes) {
    const double rank_share = static_cast<double>(node.num_ranks) / static_cast<double>(ep);
    const double expert_share = static_cast<double>(node.num_experts) / static_cast<double>(router.num_experts);
    spread.off_node_frac -= rank_share * expert_share;
    spread.nodes_reached += node.hit_chance;
    spread.per_node_off_node += node.hit_chance * (1 - rank_share);
  }
  const auto num_copies = static_cast<double>(router.experts_per_token);
  spread.per_copy_off_node = num_copies * spread.off_node_frac;
  spread.per_copy_in_node = num_copies * (spread.off_rank_frac - spread.off_node_frac);
  return spread;
}

}  // namespace simulator
