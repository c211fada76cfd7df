// What `dsv3-sim alltoall` prints: cost by EP size, tokens and back end, even and with unequal experts; and the micro view.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/all_to_all.hpp"
#include "simulator/described_model.hpp"
#include "simulator/routing.hpp"
#include "simulator/routing_trace.hpp"
#include "simulator/skew.hpp"
#include "simulator/table.hpp"

namespace simulator {

struct AllToAllOptions {
  Hardware hardware;
  Skew skew;
  std::vector<int64_t> eps{8, 16, 32, 64};
  std::vector<int64_t> tokens{1, 32, 128, 256};  // of a rank
  std::vector<AllToAllBackend> backends{AllToAllBackend::kDeepEpLowLatency};
  NetworkLink link = NetworkLink::kInfiniBand;
  int64_t num_samples = 200;
  uint64_t seed = 1;
};

// Table `alltoall`: with equal ranks (time, interval, wire part), and sampled: the slowest rank's p50 and p99 and how long the average
// rank waits for it. Experts in order, empty slots where they do not divide. Throws InputError.
std::vector<Table> alltoall_tables(const DescribedModel& described, const AllToAllOptions& options);

struct MatrixOptions {
  int64_t num_ranks = 4;
  int64_t tokens_per_rank = 2;
  Router router;
  int64_t hidden_size = 7168;
  int64_t ranks_per_node = 8;
  Skew skew;
  uint64_t seed = 1;
  std::optional<TraceLayer> trace = {};  // instead of drawn tokens; then tokens_per_rank, router and skew are not used
  int64_t num_experts = 0;               // of a trace
};

// Tables `tokens` (what each chose), `matrix` (copies from rank to rank), `ranks` (rows, copies and bytes out and in, experts touched).
std::vector<Table> dispatch_matrix_tables(const MatrixOptions& options);

}  // namespace simulator
