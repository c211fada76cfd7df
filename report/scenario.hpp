// The join: op records of one step from several sources, side by side by op id. One scenario is one model, workload and deployment.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/op_record.hpp"
#include "report/phase.hpp"
#include "simulator/hardware.hpp"

namespace report {

// Something a reader has to know: shown on the page and printed.
struct Notice {
  std::string text;
  bool is_warning = true;
};

struct RecordFile {
  std::string name;  // as the user gave it
  model::OpRecordFile content;

  // The value of a header line "key=value"; empty where there is none.
  [[nodiscard]] std::string header(const std::string& key) const;
};

// Times of one source on one device. CPU wall times and GPU times never share a ratio; an emulated run has no time at all.
struct Series {
  enum class Clock { kGpu, kCpu };
  model::RecordSource source = model::RecordSource::kLimit;
  Clock clock = Clock::kGpu;
  std::string title;   // "simulated, h200"
  std::string origin;  // file, engine, commits
  bool is_measured = false;
  std::map<int64_t, std::map<Phase, double>> rank_us = {};  // of each rank, by phase
};

struct TimedCell {
  std::optional<double> time_us;  // of the slowest rank
  std::optional<double> p10_us;
  std::optional<double> p90_us;
  int64_t repetitions = 0;
  int64_t rank = 0;  // which that is
};

struct Row {
  std::string op;
  std::string kind;
  int64_t layer = -1;
  Phase phase = Phase::kOther;
  JourneyRow journey = JourneyRow::kEngine;
  Lane lane = Lane::kCompute;
  std::string dtype;
  int64_t flops = 0;
  int64_t weight_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t kv_bytes = 0;
  int64_t wire_bytes = 0;
  std::vector<TimedCell> cells = {};  // one for each series

  // What a roofline is drawn over, as simulator/floor counts it: weights and cache; activations may stay on the chip.
  [[nodiscard]] int64_t roofline_bytes() const { return weight_bytes + kv_bytes; }
};

struct Ratio {
  size_t above = 0;  // series
  size_t below = 0;
  std::string title;
};

// FP32 multiply-adds and reading memory on the CPU of a run, from records of `dsv3-bench host`.
struct HostPeaks {
  std::string device;
  double flops_per_us = 0;
  double bytes_per_us = 0;
};

struct Scenario {
  std::string title = {};
  std::string model;
  std::string config_hash;
  std::string phase;
  int64_t batch = 0;
  int64_t tokens = 0;
  int64_t context_len = 0;
  std::string layout;
  int64_t num_gpus = 0;
  simulator::Hardware hardware = {};  // of its roofline
  std::optional<HostPeaks> host = {};
  std::vector<Series> series = {};
  std::vector<Ratio> ratios = {};
  std::vector<Row> rows = {};  // in the order of the step

  // Sum over rows of a series.
  [[nodiscard]] double total_us(size_t series) const;
  // What the whole step takes: the sum, but of a limit the larger of computing and exchange, since one can hide behind the other.
  [[nodiscard]] double step_us(size_t series) const;
  [[nodiscard]] std::optional<size_t> find(model::RecordSource source) const;
  // The series that stands for the scenario: measured on a GPU, else simulated, else a limit, else whatever ran.
  [[nodiscard]] size_t main_series() const;
};

// Joins records by config, step, device and layout. A run on a CPU or in the emulation joins the deployments of the same step, whose
// context may differ by a tenth, and gets the roofline of `gpu` from its counted bytes and FLOPs. Throws InputError where nothing can
// be joined at all or a `gpu` is unknown.
std::vector<Scenario> build_scenarios(const std::vector<RecordFile>& files,
                                      const std::string& gpu,
                                      std::vector<Notice>& notices);

// What an op with these counts takes at least.
double roofline_us(const Row& row, const simulator::Hardware& hardware);

}  // namespace report
