// Recording a golden file: the reference run on cases, seen by recorders.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "golden/recorder.hpp"
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
  std::vector<golden::StoreRule> store = {};
  std::string fault = {};
  reference::Transformer::RunOp run = {};      // in place of the reference's ops, when no fault is named
  std::optional<reference::Rules> rules = {};  // in place of those of `mode`: a variant that no flag names
  int num_threads = 1;
  bool hashes_weights = true;  // false: the checkpoint's own hash stands for every bit of them
  // Of a long recording: a file that keeps what an interrupted one has computed, deleted at the end; and what decides the outputs
  // besides the job.
  std::string journal = {};
  std::string identity = {};
  std::function<void(const std::string& line)> show = {};  // given a line of progress now and then
};

// Multiply-adds of all steps, times two.
double num_flops(const model::ModelConfig& config, const RecordJob& job);

// Runs the cases. The manifest is complete but for checkpoint, commit and version. Throws InputError when no op of them is asked for.
golden::GoldenFile record(const model::WeightSource& weights, const RecordJob& job);

// The mode a golden file was recorded in.
ModeFlags mode_of(const golden::Manifest& manifest);

}  // namespace tools
