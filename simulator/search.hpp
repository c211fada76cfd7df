// All layouts and batches of a number of GPUs, and which of them nobody beats.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/deployment.hpp"
#include "simulator/table.hpp"
#include "simulator/what_if.hpp"

namespace simulator {

struct SearchRequest {
  DeploymentRequest base;  // model, GPU, engine, workload; its layout, batch and workers are what is searched
  std::vector<int64_t> gpus = {64, 128, 256, 512};
  std::optional<double> most_ttft_ms = {};
  std::optional<double> most_tpot_ms = {};
  double dollars_per_gpu_hour = 0;  // 0: costs are left out
  bool disaggregated = false;       // prefill on GPUs of its own, as many as the decode workers need
};

struct SearchPoint {
  Deployment deployment;
  Serving serving;
};

struct SearchResult {
  int64_t num_points = 0;  // that fit in memory and were estimated
  std::vector<SearchPoint>
      pareto;  // within the limits, by falling tokens/s a user; each has more tokens/s a GPU than those before
};

// Layouts: tp 1 to 16 alone and in pipelines of 2 and 4, and tp 1 to 8 with attention over dp groups and experts over all of 8 to 320
// ranks (redundant experts fill up what does not divide), as many workers as fill the GPUs. Prefill pools of their own: tp8, dep8,
// dep16 or dep32, at most 90 % busy. Batches: 1, 2, 4, ..., 1024 sequences of a DP rank. Throws InputError when nothing keeps the
// limits, naming the closest.
SearchResult search(const SearchRequest& request,
                    const std::vector<Calibration>& calibrations,
                    const HardwareChanges& changes,
                    MoeCurves& curves);

// "pareto": the columns that aiconfigurator prints, and dollars for a million answer tokens.
Table pareto_table(const SearchResult& result, double dollars_per_gpu_hour);
// Tokens/s a GPU (up) over tokens/s a user (right), logarithmic, for a terminal.
std::string pareto_plot(const SearchResult& result);

}  // namespace simulator
