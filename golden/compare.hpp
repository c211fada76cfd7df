// Forced comparison: every op of a dump recomputed from the dump's own inputs and held against a narrow bound.
// docs/contracts.md section 3 says what that decides.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "golden/formats.hpp"
#include "golden/recompute.hpp"
#include "golden/store.hpp"
#include "golden/verdict.hpp"
#include "model/config.hpp"

namespace golden {

// What of a dump's routing is taken as given instead of judged: to look at the rest of a run whose router is known to differ.
enum class PinRouting { kNone, kIds, kIdsAndWeights };

struct CompareOptions {
  std::vector<std::string> cases;  // empty: every case of the golden file
  bool strict = false;
  PinRouting pin_routing = PinRouting::kNone;
  bool with_oracle_ratio = false;                                  // OpResult::oracle_ratio too
  std::function<void(const std::string& case_name)> on_case = {};  // progress
};

// Width of the statistical bound: with so many elements and up to 64 rules tried, the chance that any legal element falls outside
// is 2 * 64 elements exp(-s^2 / 2) = 1e-9.
double family_wise_sigmas(double num_elements);

// Makes the arithmetic for one step. num_sigmas is the width of the statistical bound that keeps false alarms below 1e-9 a file.
using MakeRecompute = std::function<std::unique_ptr<Recompute>(const model::Workload& workload, double num_sigmas)>;

// Throws InputError when a case is not in the golden file.
Verdict compare(const model::ModelConfig& config,
                const GoldenFile& golden,
                const Dump& dump,
                const CompareOptions& options,
                const MakeRecompute& make_recompute);

}  // namespace golden
