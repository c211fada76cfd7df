// Bubbles of pipeline schedules: the published formulas, and a discrete-event run of the schedules themselves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/table.hpp"

namespace simulator {

enum class PipelineSchedule {
  kForward,   // inference: forward passes alone
  k1F1B,      // one forward, one backward in turn
  kZb1P,      // zero bubble with the memory of 1F1B (ZB-H1, arXiv 2401.10241): weight gradients fill the gaps
  kDualPipe,  // from both ends at once (DeepSeek-V3 report, section 3.2.1); every rank holds two stages
};

std::string_view schedule_name(PipelineSchedule schedule);

// One micro-batch on one stage, in any unit of time.
struct PipelineTimes {
  double forward = 1;
  double backward = 2;  // for inputs and weights
  double weight = 1;    // of it the part for weights
  double both = 3;      // a forward and a backward of different micro-batches overlapped (DualPipe)
};

// Throws InputError: fewer than 1 stage or micro-batch, or too many to run; DualPipe: an odd number of either, or fewer than 2 micro-batches a stage.
void check_pipeline(PipelineSchedule schedule, int64_t num_stages, int64_t num_batches);

// The published bubble of a rank: (P-1) F; (P-1)(F+B); (P-1)(F+B-2W); (P/2-1)(F&B+B-3W).
double bubble_formula(PipelineSchedule schedule, int64_t num_stages, const PipelineTimes& times);

struct PipelineRun {
  double makespan = 0;
  std::vector<double> busy;  // of each rank

  // What the rank that waits most has idle.
  [[nodiscard]] double bubble() const;
};

// The schedule, op by op: each rank works off its list in order, an op starts when its inputs are there. Messages take no time.
PipelineRun run_pipeline(PipelineSchedule schedule,
                         int64_t num_stages,
                         int64_t num_batches,
                         const PipelineTimes& times);

// A row for each schedule; DualPipe's says what it needs where these numbers do not allow it.
Table pipeline_table(int64_t num_stages, int64_t num_batches, const PipelineTimes& times);

}  // namespace simulator
