// Records against those of an older run: which ops changed by more than their own noise explains.
#pragma once

#include <string>
#include <vector>

#include "report/scenario.hpp"

namespace report {

enum class Change { kSame, kSlower, kFaster, kUnclear };

std::string_view change_name(Change change);

struct ChangedOp {
  std::string op;
  std::string source;
  std::string device;
  std::string phase;
  int64_t rank = 0;
  double old_us = 0;
  double new_us = 0;
  double noise_us = 0;  // what a difference has to exceed; 0 where nobody knows
  Change change = Change::kSame;
};

struct Regression {
  std::vector<ChangedOp> ops;
  int64_t num_only_old = 0;
  int64_t num_only_new = 0;
  double sigmas = 0;  // standard errors that a difference has to exceed

  [[nodiscard]] int64_t count(Change change) const;
};

// Joins by op, rank, phase, tokens, sequences, context, source, device and config. A measured time is a median of n repetitions with
// its p10 and p90, so its standard error is about 1.2533 (p90 - p10) / 2.5631 / sqrt(n). A change counts when it is larger than 1 %
// and than `sigmas` standard errors of the difference, which keeps the chance of one false alarm in the whole list at 1 %
// (Bonferroni, Gaussian tail). Without percentiles or with fewer than 5 repetitions it is unclear. Computed times have no noise.
Regression compare_records(const std::vector<RecordFile>& now, const std::vector<RecordFile>& before);

}  // namespace report
