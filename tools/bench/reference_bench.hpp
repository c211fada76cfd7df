// The benchmarks of the CPU reference: linears of real and small shapes beside the machine's own limits, and whole tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/weight_source.hpp"
#include "tools/bench/port_bound.hpp"

namespace tools {

struct BenchFlags {
  int num_threads = 1;
  double min_time_s = 0.2;
  int num_repetitions = 3;
  std::string filter;              // only shapes whose name contains it
  std::string mode = "published";  // what the rules of linears are; as --mode of the other programs
};

// The limits that the other rows are divided by.
struct MachineLimits {
  double fma_gmac_per_s = 0;
  double cached_gload_per_s = 0;  // whole vectors from the first cache
  double goperation_per_s = 0;    // on whole vectors of integers in registers
  double read_gb_per_s = 0;
  int64_t buffer_bytes = 0;  // what was read
  double fma_gain = 1;       // of the multiply-add loop: with all threads, over one
};
MachineLimits measure_limits(const BenchFlags& flags);

// One linear at one number of tokens.
struct LinearRow {
  std::string model;   // "v3" or "mini"
  std::string op;      // as in the op list, without the layer
  std::string format;  // "fp8" or "bf16"
  int64_t out_dim = 0;
  int64_t in_dim = 0;
  int64_t num_tokens = 0;
  double gmac_per_s = 0;                     // of the best repetition
  double weight_gb_per_s = 0;                // likewise: bytes of weights and scales read in the time
  std::optional<PortCount> port_count = {};  // of the inner loop
  std::vector<double> seconds = {};          // of every repetition, ascending
  double gain = 1;                           // with all threads, over one
};
// Weights of random codes that are in no cache when they are read: each call takes other ones.
std::vector<LinearRow> measure_linears(const BenchFlags& flags, const MachineLimits& limits);

// Tokens of a model, through the whole op list.
struct EndToEndRow {
  std::string phase;  // "prefill" or "decode"
  int64_t num_tokens = 0;
  int64_t num_cached = 0;
  double tokens_per_s = 0;
  double gmac_per_s = 0;  // multiply-adds of dot products that the op list counts
};
std::vector<EndToEndRow> measure_end_to_end(const BenchFlags& flags, const model::WeightSource& weights);

}  // namespace tools
