// Time of one dispatch or combine among the ranks of an expert-parallel group: a fixed part, and the bytes that a rank sends or
// receives on each tier of links. The constants are fitted to published tables; docs/skew.md has them with their errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "simulator/hardware.hpp"

namespace simulator {

enum class AllToAllBackend {
  kDeepEpLowLatency,       // DeepEP's low-latency kernels as measured: one message for each chosen expert
  kDeepEpLowLatencyDedup,  // with per-node deduplication: one copy a node over the network, forwarded over NVLink
  kDeepEpNormal,           // DeepEP's normal kernels, 20-24 SMs: one copy a node, one a rank over NVLink
  kDeepEpV2,               // DeepEP V2: the normal kernels' bytes at the low-latency kernels' fixed part
  kNvlinkOneSided,         // TensorRT-LLM, inside one NVLink domain: one copy a rank
  kNvlinkTwoSided,
  kAllGatherReduceScatter,  // every rank gets every token, whatever it needs
  kFused,                   // dispatch, experts and combine in one kernel: bytes hide behind products, tile by tile
};

enum class NetworkLink { kInfiniBand, kRoce };

// "deepep-ll", "deepep-ll-dedup", "deepep-normal", "deepep-v2", "nvlink-one-sided", "nvlink-two-sided", "allgather", "fused".
std::string_view backend_name(AllToAllBackend backend);
// Throws InputError with the names.
AllToAllBackend parse_backend(std::string_view name);
// Throws InputError for a back end whose dispatch and combine are no kernels of their own.
void check_has_phases(AllToAllBackend backend);
// "infiniband" or "ib", "roce". Throws InputError.
NetworkLink parse_link(std::string_view name);

// What a backend sends of a token with several experts at the same place.
enum class Deduplication { kPerCopy, kPerNode, kPerRank, kEverything };
Deduplication network_deduplication(AllToAllBackend backend);
Deduplication nvlink_deduplication(AllToAllBackend backend);

struct AllToAllSetup {
  Hardware hardware;
  AllToAllBackend backend = AllToAllBackend::kDeepEpLowLatency;
  NetworkLink link = NetworkLink::kInfiniBand;
  int64_t num_ranks = 0;
  int64_t hidden_size = 7168;
  int64_t num_experts = 256;
  std::string version = {};  // of the table that the constants come from, as "0.5.0"; empty: the newest
};

// Token states that one rank moves on each tier, the larger of sent and received.
struct TierCopies {
  double network = 0;
  double nvlink = 0;
};

// Where a time comes from, for whoever has to trust it.
struct AllToAllBasis {
  std::string source;
  double interval_frac = 0;  // 90 % of measurements are expected within time * (1 -+ this)
  bool is_measured = false;  // fitted on this GPU and backend; else carried over by rates
};

class AllToAll {
 public:
  // Throws InputError: no ranks, a backend that needs one NVLink domain on more.
  explicit AllToAll(const AllToAllSetup& setup);

  [[nodiscard]] double dispatch_us(const TierCopies& copies) const { return time_us(dispatch_, copies); }
  [[nodiscard]] double combine_us(const TierCopies& copies) const { return time_us(combine_, copies); }
  [[nodiscard]] const AllToAllBasis& basis() const { return basis_; }
  [[nodiscard]] int64_t num_nodes() const { return num_nodes_; }  // NVLink domains
  [[nodiscard]] int64_t ranks_per_node() const { return ranks_per_node_; }
  [[nodiscard]] double dispatch_bytes_per_copy() const { return dispatch_.bytes_per_copy; }
  [[nodiscard]] double combine_bytes_per_copy() const { return combine_.bytes_per_copy; }

  // What a fused kernel adds to `compute_us` of products: one start, and what of both phases' bytes does not hide behind them.
  [[nodiscard]] double fused_us(const TierCopies& copies, double compute_us) const;

  // The bytes of a phase alone, without the fixed part.
  [[nodiscard]] double dispatch_wire_us(const TierCopies& copies) const { return wire_us(dispatch_, copies); }
  [[nodiscard]] double combine_wire_us(const TierCopies& copies) const { return wire_us(combine_, copies); }

 private:
  struct Phase {
    double fixed_us = 0;
    double bytes_per_copy = 0;
    double network_gb_per_s = 0;
    double nvlink_gb_per_s = 0;
    // The part of the fixed time that hides behind bytes as they grow: overlap_us * c / (c + 168) for c copies over NVLink.
    double overlap_us = 0;
  };
  static double wire_us(const Phase& phase, const TierCopies& copies);
  static double time_us(const Phase& phase, const TierCopies& copies);

  Phase dispatch_;
  Phase combine_;
  AllToAllBasis basis_;
  int64_t num_nodes_ = 1;
  int64_t ranks_per_node_ = 1;
};

// Copies of the average rank when every expert is equally likely and each of `num_ranks` ranks has `tokens_per_rank` tokens.
TierCopies even_copies(const AllToAll& all_to_all,
                       AllToAllBackend backend,
                       int64_t num_ranks,
                       int64_t experts_per_token,
                       double tokens_per_rank);

}  // namespace simulator
