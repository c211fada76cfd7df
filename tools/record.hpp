// Recording a golden file: the reference run on cases, seen by recorders.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "golden/store.hpp"
#include "model/weight_source.hpp"
#include "reference/rules.hpp"
#include "reference/transformer.hpp"
#include "tools/mode_flags.hpp"

namespace tools {

struct RecordJob {
  ModeFlags mode;                     // resolved
  std::vector<golden::Case> cases;    // all that must run, in order
  std::vector<std::string> recorded;  // names of those that are stored; empty: all
  int64_t num_decode = 0;             // greedy steps d0.. after the last case
  bool with_mtp = false;
  bool with_bounds = false;  // store <case>/<op>.bound beside each tensor, F64
  std::vector<int64_t> layers = {};
  std::vector<std::string> ops = {};
  std::string fault = {};
  reference::Transformer::RunOp run = {};      // in place of the reference's ops, when no fault is named
  std::optional<reference::Rules> rules = {};  // in place of those of `mode`: a variant that no flag names
  int num_threads = 1;
  std::function<void(const std::string& case_name)> on_case = {};
};

// Runs the cases. The manifest is complete but for checkpoint, commit and version.
golden::GoldenFile record(const model::WeightSource& weights, const RecordJob& job);

}  // namespace tools
