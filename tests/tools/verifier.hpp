// Recording and verifying in one process, as the two programs do it: what the end-to-end tests share.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "golden/compare.hpp"
#include "model/checkpoint.hpp"
#include "tests/paths.hpp"
#include "tools/recompute.hpp"
#include "tools/record.hpp"

namespace tools {

inline const std::vector<std::string> kFullCases{"p1", "p2", "p7", "d0", "d7"};

// A fixture folder: checkpoint/ and prompts.json, as golden/data/mini and the oracle have them.
class Fixture {
 public:
  explicit Fixture(const std::filesystem::path& folder)
      : folder_(folder), checkpoint_(folder / "checkpoint"), cases_(golden::read_cases(folder / "prompts.json")) {}

  [[nodiscard]] const model::Checkpoint& checkpoint() const { return checkpoint_; }
  [[nodiscard]] std::filesystem::path folder() const { return folder_; }

  // All cases of prompts.json, or the named ones (and what they follow, which runs but is not stored).
  [[nodiscard]] golden::GoldenFile record(const ModeFlags& mode,
                                          const std::vector<std::string>& names,
                                          RecordJob job = {}) const {
    job.mode = resolved(mode, checkpoint_.config());
    job.cases = names.empty() ? cases_ : golden::select_cases(cases_, names);
    job.recorded = names;
    job.num_threads = 2;
    auto golden = tools::record(checkpoint_, job);
    golden.manifest.checkpoint_hash = checkpoint_.header_hash();
    return golden;
  }

  [[nodiscard]] golden::Dump dump(const std::string& file, const std::string& format) const {
    return golden::read_dump(folder_ / file, format, checkpoint_.config(), cases_);
  }

  [[nodiscard]] golden::Verdict compare(const golden::GoldenFile& golden,
                                        const golden::Dump& dump,
                                        const golden::CompareOptions& options = {}) const {
    const auto& m = golden.manifest;
    const auto rules = rules_of(mode_of(m));
    return golden::compare(
        checkpoint_.config(), golden, dump, options, [&](const model::Workload& workload, double num_sigmas) {
          return std::make_unique<ReferenceRecompute>(checkpoint_, rules, workload, num_sigmas, 2);
        });
  }

 private:
  std::filesystem::path folder_;
  model::Checkpoint checkpoint_;
  std::vector<golden::Case> cases_;
};

// The trained model in the tree.
inline const Fixture& mini() {
  static const Fixture fixture(source_dir() / "golden/data/mini");
  return fixture;
}

// Every op that did not pass, for a failing test's message.
inline std::string complaints(const golden::Verdict& verdict) {
  std::string text;
  for (const auto& op : verdict.ops) {
    if (op.status > golden::OpStatus::kFlip) {
      text += op.case_name + "/" + op.op + " " + std::string(golden::status_name(op.status)) + ": " +
              (op.divergence ? op.divergence->reason : op.reason) + "\n";
    }
  }
  return text;
}

}  // namespace tools
