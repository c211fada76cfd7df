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

namespace tools {

// A numerics mode as the flags and the golden manifest spell it.
struct ModeFlags {
  std::string mode = "published";  // exact, published
  std::string profile = "v32";     // v32, v3-demo, hf
  std::string gemm = {};           // fp8, bf16; empty: what the checkpoint is
  std::string scale = {};          // fp32, ue8m0; empty: the checkpoint's scale_fmt, else fp32
  std::string attention =
      {};  // naive, absorbed, by-length; empty: naive for exact and hf, absorbed for v3-demo, by-length for v32
};

// Fills in the defaults that the checkpoint decides. Throws InputError for a value that is not listed above.
ModeFlags resolved(ModeFlags flags, const model::ModelConfig& config);
// The rules that resolved flags (or the flags of a manifest) stand for.
reference::Rules rules_of(const ModeFlags& flags);

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
