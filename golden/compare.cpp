#include "golden/compare.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "golden/case_judge.hpp"
#include "golden/case_values.hpp"
#include "model/config_hash.hpp"

namespace golden {
namespace {

double element_count(const Dump& dump) {
  double count = 1;
  for (const auto& [name, tensor] : dump.tensors) {
    count += static_cast<double>(tensor.size());
  }
  return count;
}

std::vector<Case> chosen_cases(const GoldenFile& golden, const std::vector<std::string>& names) {
  std::set<std::string> recorded;
  for (const auto& [name, tensor] : golden.tensors) {
    recorded.insert(name.substr(0, name.find('/')));
  }
  for (const auto& [name, reduced] : golden.manifest.reduced) {
    recorded.insert(name.substr(0, name.find('/')));
  }
  std::vector<Case> cases = names.empty() ? golden.manifest.cases : select_cases(golden.manifest.cases, names);
  std::erase_if(cases, [&](const Case& c) {
    const bool asked = names.empty() || std::find(names.begin(), names.end(), c.name) != names.end();
    return !asked || !recorded.contains(c.name);
  });
  if (cases.empty()) {
    model::throw_input_error("golden file: none of the asked cases is recorded in it");
  }
  return cases;
}

// Ids that are not a choice at all stay what they are: diverged.
bool is_pinned(PinRouting pin, const OpResult& result) {
  const bool ids = result.op.ends_with(".moe.topk_ids") || result.op.ends_with(".moe.group_ids");
  const bool weights = result.op.ends_with(".moe.topk_weights");
  const bool illegal = result.divergence && result.divergence->token < 0;
  return !illegal && ((ids && pin != PinRouting::kNone) || (weights && pin == PinRouting::kIdsAndWeights));
}

}  // namespace

double family_wise_sigmas(double num_elements) {
  return std::sqrt(2 * std::log(2 * 64 * num_elements / 1e-9));
}

Verdict compare(const model::ModelConfig& config,
                const GoldenFile& golden,
                const Dump& dump,
                const CompareOptions& options,
                const MakeRecompute& make_recompute) {
  Verdict verdict;
  const Manifest& manifest = golden.manifest;
  verdict.profile = manifest.mode == "exact"       ? "exact"
                    : manifest.mode == "published" ? manifest.profile
                                                   : manifest.profile + ", mode " + manifest.mode;
  verdict.config_hash = model::config_hash(config);
  const auto judged = chosen_cases(golden, options.cases);
  const double num_sigmas = family_wise_sigmas(element_count(dump));
  std::map<std::string, CaseValues> values;
  std::set<std::string> notes;
  for (const Case& step : golden.manifest.cases) {
    const auto workload = workload_of(config, golden, dump, step);
    const CaseValues* earlier = step.after.empty() ? nullptr : &values.at(step.after);
    const auto& current =
        values.emplace(step.name, CaseValues(config, golden, dump, step, workload, earlier)).first->second;
    if (std::find(judged.begin(), judged.end(), step) == judged.end()) {
      continue;
    }
    if (options.on_case) {
      options.on_case(step.name);
    }
    const auto recompute = make_recompute(workload, num_sigmas);
    CaseJudge judge(config, current, workload, *recompute, num_sigmas, options.with_oracle_ratio);
    auto results = judge.judge();
    const auto num_judged = results.size();
    std::erase_if(results, [&](const OpResult& r) { return is_pinned(options.pin_routing, r); });
    if (results.size() < num_judged) {
      notes.insert(step.name + ": routing pinned to the dump's, not judged");
    }
    std::move(results.begin(), results.end(), std::back_inserter(verdict.ops));
    notes.insert(judge.notes().begin(), judge.notes().end());
  }
  verdict.notes.assign(notes.begin(), notes.end());
  verdict.outcome = decide(verdict.ops, options.strict);
  return verdict;
}

}  // namespace golden
