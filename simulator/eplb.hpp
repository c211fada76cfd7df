// Placements computed from a load: DeepSeek's expert-parallel load balancer (hierarchical and global), a local search that shows
// how much better one could do, and the loads of ranks that a placement leads to.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/placement.hpp"

namespace simulator {

struct EplbShape {
  int64_t num_slots = 0;   // experts and their copies, a multiple of num_ranks
  int64_t num_groups = 1;  // expert groups of the router
  int64_t num_nodes = 1;
  int64_t num_ranks = 1;
};

// Nodes are the NVLink domains that the ranks fill, or one where they fill none or not all.
EplbShape eplb_shape(int64_t num_slots, int64_t num_groups, int64_t num_ranks, int64_t ranks_per_domain);

// Source: description of deepseek-ai/EPLB. Hierarchical when num_groups is a multiple of num_nodes: groups are packed to nodes,
// experts copied inside a node, copies packed to the node's ranks. Otherwise global: all experts as one group on one node.
// Packing: heaviest first, into the lightest pack that has room, equal numbers in each. Copying: one more copy, time and again, for
// the expert with the largest load per copy. Ties go to the lower index. Throws InputError for a shape that cannot be.
// The copies of an expert share its load evenly. A rank may hold two copies of one expert.
Placement eplb_placement(const std::vector<double>& load, const EplbShape& shape);

// The load of each rank when an expert's copies share its load evenly. [num_ranks]
std::vector<double> rank_loads(const std::vector<double>& load, const Placement& placement);

// Largest over mean; 1 when all are equal. 1 for an all-zero load.
double max_over_mean(const std::vector<double>& loads);

// Swaps slots between the fullest rank and others, and gives copies to other experts, as long as the fullest rank gets lighter: a
// placement that is at least as good as `start`, a bound on what balancing by slots can reach. Not proved optimal.
Placement improved_placement(const std::vector<double>& load, const Placement& start);

// The V3 report's dynamic redundancy: every rank hosts `num_hosted` experts, of which `num_active` compute in a step. Hosted are the
// slots of EPLB's global placement for num_ranks * num_active slots, and on each rank further experts, the most loaded first. Each step
// starts from EPLB's slots and swaps copies between their hosts as long as the fullest rank gets lighter, so it is never worse than
// EPLB for the load of that step. Returns the active slots as a placement with num_active slots a rank.
Placement dynamic_redundancy(const std::vector<double>& hosted_load,
                             const std::vector<double>& step_load,
                             int64_t num_ranks,
                             int64_t num_hosted,
                             int64_t num_active);

}  // namespace simulator
