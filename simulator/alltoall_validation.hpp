// Holds the all-to-all model against a measured table, row by row. `dsv3-sim validate --alltoall FILE.csv` prints it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "simulator/all_to_all.hpp"
#include "simulator/table.hpp"

namespace simulator {

// One phase of one row of the table.
struct AllToAllRow {
  int64_t line = 0;
  std::string gpu;
  int64_t num_nodes = 1;
  int64_t num_ranks = 0;
  int64_t tokens_per_rank = 0;
  int64_t hidden_size = 0;
  int64_t experts_per_token = 0;
  int64_t num_experts = 0;
  std::string version = {};  // of the SGLang image, from the notes; empty when they do not say
  bool is_dispatch = true;
  double measured_us = 0;
};

// Columns of deepep_low_latency_sweep.csv: gpu, num_nodes, ep_size, tokens_per_rank, hidden, topk, num_experts, dispatch_latency_us,
// combine_latency_us; notes, bandwidths and source may be there. Each row gives its dispatch and its combine; an empty latency is
// left out. Throws InputError naming file and line: a column that is missing or unknown, a number that is none, a table without rows.
std::vector<AllToAllRow> read_all_to_all_rows(const std::filesystem::path& path);

struct AllToAllPrediction {
  double predicted_us = 0;
  double low_us = 0;  // 90 % interval
  double high_us = 0;
  std::string source;
};

// Throws InputError for a GPU that no hardware file is like.
AllToAllPrediction predict(const AllToAllRow& row, AllToAllBackend backend, NetworkLink link);

// The built-in hardware that a GPU's name as vendors and tables write it means ("H100 80GB HBM3" -> "h100"; B300 and GB300 are taken
// as B200 and GB200, whose links they have, unless a file of their own is built in). Throws InputError.
std::string hardware_of_gpu_name(const std::string& gpu);

// Tables `rows` (one a phase and row), `summary` (one: rows, median_abs_error_pct, p90_abs_error_pct, bias_pct, coverage_90_pct) and
// `groups` (the same by GPU, EP size and phase).
std::vector<Table> validate_all_to_all(const std::vector<AllToAllRow>& rows, AllToAllBackend backend, NetworkLink link);

}  // namespace simulator
