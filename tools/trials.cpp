#include "tools/trials.hpp"

#include <algorithm>

#include "golden/compare.hpp"
#include "tools/cli.hpp"
#include "tools/recompute.hpp"

namespace tools {

const model::WeightSource& Trials::weights(const std::string& fixture) {
  auto& opened = weights_[fixture];
  if (opened == nullptr) {
    opened = open_checkpoint(fixture).weights;
  }
  return *opened;
}

golden::GoldenFile Trials::record(const std::string& fixture, const std::vector<golden::Case>& cases, RecordJob job) {
  job.mode = resolved(job.mode, weights(fixture).config());
  job.cases = cases;
  job.with_mtp = std::ranges::any_of(cases, [](const golden::Case& c) { return !c.mtp_ids.empty(); });
  return tools::record(weights(fixture), job);
}

const golden::GoldenFile& Trials::right(const std::string& fixture, const std::vector<golden::Case>& cases) {
  const auto known =
      std::ranges::find_if(rights_, [&](const Right& r) { return r.fixture == fixture && r.cases == cases; });
  if (known != rights_.end()) {
    return known->golden;
  }
  RecordJob job;
  job.num_threads = num_threads_;
  rights_.push_back({fixture, cases, record(fixture, cases, job)});
  return rights_.back().golden;
}

Trial Trials::judge(const std::string& fixture, const std::vector<golden::Case>& cases, golden::GoldenFile changed) {
  const auto& golden = right(fixture, cases);
  const auto& m = golden.manifest;
  const auto rules = rules_of(mode_of(m));
  auto verdict = golden::compare(weights(fixture).config(),
                                 golden,
                                 {.tensors = changed.tensors, .unused = {}},
                                 {},
                                 [&](const model::Workload& workload, double num_sigmas) {
                                   return std::make_unique<ReferenceRecompute>(
                                       weights(fixture), rules, workload, num_sigmas, num_threads_);
                                 });
  return {golden, std::move(changed), std::move(verdict)};
}

Trial Trials::run(const std::string& fixture, const std::vector<golden::Case>& cases, RecordJob job) {
  return judge(fixture, cases, record(fixture, cases, std::move(job)));
}

Trial Trials::run(const Fault& fault) {
  RecordJob job;
  job.fault = fault.id;
  job.num_threads = num_threads_;
  return run(fault.fixture, fault.cases, std::move(job));
}

}  // namespace tools
