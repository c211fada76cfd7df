// What the ranks of an expert-parallel group send, receive and compute when the experts of one layer get given token counts.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "simulator/all_to_all.hpp"
#include "simulator/placement.hpp"
#include "simulator/routing.hpp"

namespace simulator {

// What a rank computes in one layer.
struct RankLoad {
  int64_t num_tokens = 0;          // token copies, that is rows of the grouped product
  int64_t num_active_experts = 0;  // slots with at least one row, whose weights are read
  double rows_per_expert = 0;      // num_tokens / num_active_experts; 0 when there are none
  int64_t padded_rows = 0;         // the rows of each slot rounded up to whole tiles of kTileRows
};

// Rows of a tile of the grouped product (DeepGEMM's masked kernel: 64 on Hopper).
inline constexpr int64_t kTileRows = 64;

// Where the copies of a layer go; everything that does not change from step to step is worked out once.
class LayerTraffic {
 public:
  // `popularity` ([num_experts], sums to 1) decides how many nodes a token reaches, which only deduplicating back ends ask for; with
  // a group-limited router that is measured on tokens routed one by one.
  LayerTraffic(const AllToAll& all_to_all,
               AllToAllBackend backend,
               const Router& router,
               const Placement& placement,
               double tokens_per_rank,
               const std::vector<double>& popularity,
               uint64_t seed);

  // From the copies of each expert to those of each rank. [num_ranks]
  [[nodiscard]] std::vector<RankLoad> loads(const std::vector<int64_t>& expert_counts, int64_t first_copy) const;

  // Rows of each rank (may be fractions) -> token states that it moves on each tier, the larger of both directions. [num_ranks]
  [[nodiscard]] std::vector<TierCopies> copies(const std::vector<double>& rank_rows) const;

  [[nodiscard]] int64_t num_ranks() const { return num_ranks_; }
  [[nodiscard]] int64_t num_tokens() const { return std::llround(static_cast<double>(num_ranks_) * tokens_per_rank_); }

 private:
  [[nodiscard]] double node_reach(size_t node, double node_share) const;
  [[nodiscard]] int64_t node_of(int64_t rank) const { return rank / ranks_per_node_; }

  AllToAllBackend backend_;
  int64_t num_ranks_ = 0;
  int64_t ranks_per_node_ = 0;
  int64_t num_nodes_ = 0;
  double tokens_per_rank_ = 0;
  int64_t experts_per_token_ = 0;
  Placement placement_;
  std::vector<int64_t> copies_of_expert_;  // slots that hold it
  std::vector<int64_t> copy_of_slot_;      // which of the expert's copies a slot is
  std::vector<double> reach_;              // [num_nodes] chance that a token has a copy there; empty: from the shares
};

}  // namespace simulator
