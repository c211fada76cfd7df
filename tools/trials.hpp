// A changed run held against the right one, in one process: what the fault tests, the legal runs and the score share.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "golden/store.hpp"
#include "golden/verdict.hpp"
#include "model/weight_source.hpp"
#include "reference/transformer.hpp"
#include "tools/faults.hpp"
#include "tools/record.hpp"

namespace tools {

struct Trial {
  const golden::GoldenFile& right;  // lives as long as the Trials
  golden::GoldenFile changed;
  golden::Verdict verdict;  // of `changed`, forced
};

// Opens checkpoints and records right runs (profile v32) once, then changed ones against them.
class Trials {
 public:
  explicit Trials(int num_threads) : num_threads_(num_threads) {}

  Trial run(const Fault& fault);
  // Cases of `fixture` with `job.run`, `job.mode.attention` and `job.num_threads`; the rest of `job` is filled in.
  Trial run(const std::string& fixture, const std::vector<golden::Case>& cases, RecordJob job);
  // A changed run that was recorded elsewhere.
  Trial judge(const std::string& fixture, const std::vector<golden::Case>& cases, golden::GoldenFile changed);

  const model::WeightSource& weights(const std::string& fixture);
  golden::GoldenFile record(const std::string& fixture, const std::vector<golden::Case>& cases, RecordJob job);

 private:
  struct Right {
    std::string fixture;
    std::vector<golden::Case> cases;
    golden::GoldenFile golden;
  };

  const golden::GoldenFile& right(const std::string& fixture, const std::vector<golden::Case>& cases);

  int num_threads_;
  std::map<std::string, std::unique_ptr<model::WeightSource>> weights_;
  std::deque<Right> rights_;
};

}  // namespace tools
