// What top-k routing means for counting: experts that a batch touches, nodes that a token's copies reach, full and empty slots
// under a capacity factor. Expectations are exact for uniform routing; nothing is sampled.
#pragma once

#include <cstdint>
#include <vector>

namespace simulator {

// Of `num_experts`, how many at least one of `num_tokens` tokens chooses: E (1 - (1 - k/E)^B). 0 for a dense model.
double expected_active_experts(int64_t num_experts, int64_t experts_per_token, int64_t num_tokens);

// Experts in consecutive groups of equal size; a token keeps `kept_groups` of them and chooses `experts_per_token` experts there.
struct Router {
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t num_groups = 1;
  int64_t kept_groups = 1;
};

// One node of an expert-parallel group. Expert e is on rank floor(e * ep / num_experts), rank r on node floor(r / gpus_per_node).
struct Node {
  int64_t num_ranks = 0;
  int64_t num_experts = 0;
  double hit_chance = 0;  // that a token chooses at least one of its experts; groups and experts uniformly chosen
};

std::vector<Node> expert_nodes(const Router& router, int64_t ep, int64_t gpus_per_node);

// No token can reach more nodes than this.
int64_t most_nodes(const Router& router, int64_t ep, int64_t gpus_per_node);

// Every expert gets ceil(factor * mean load) slots: what stays empty is padding, what does not fit is dropped.
struct CapacityCount {
  int64_t num_copies = 0;  // sum of the load
  int64_t max_load = 0;
  int64_t capacity = 0;  // slots of an expert
  int64_t num_padding = 0;
  int64_t num_dropped = 0;

  [[nodiscard]] double dropped_frac() const;
  [[nodiscard]] double padding_frac() const;  // of all slots
};

// `load`: token copies for each expert. Throws InputError for an empty or all-zero load, or a factor that is not above 0.
CapacityCount count_capacity(const std::vector<int64_t>& load, double factor);

}  // namespace simulator
