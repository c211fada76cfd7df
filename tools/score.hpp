// dsv3-verify score: every planted fault and many legal runs, judged by this verifier and by the figures that others compare with.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "tools/legal_runs.hpp"
#include "tools/trials.hpp"

namespace tools {

// A figure and the limit that somebody's test suite puts on it.
struct ScoreMetric {
  std::string name;
  std::string limit;
  // True if two tensors of one shape are within the limit. NaN anywhere is not.
  std::function<bool(const std::vector<double>& expected, const std::vector<double>& got)> holds;
};
const std::vector<ScoreMetric>& score_metrics();

// What one metric says of a run that was not forced: right values against the run's own.
struct MetricFinding {
  bool in_logits = false;  // alarm on logits, the main model's or an MTP layer's
  std::string
      first_op;  // first op in order whose tensor raises an alarm; empty: none. Ids and unequal shapes are passed over
};
std::map<std::string, MetricFinding> findings_of(const Trial& trial);

struct ScoreFlags {
  bool json = false;
  int64_t num_legal = 120;
  int num_threads = 1;
};
void add_score(CLI::App& app, ScoreFlags& flags);
// Prints the tables. kExitOk if every fault is found at its op, no legal run raises an alarm, and no bound is loose.
int run_score(const ScoreFlags& flags);

}  // namespace tools
