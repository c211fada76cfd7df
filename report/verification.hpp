// The verdict that `dsv3-verify --json` wrote, as a report shows it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/scenario.hpp"

namespace report {

struct VerifiedOp {
  std::string case_name;
  std::string op;
  std::string status;               // docs/contracts.md, section 3
  std::optional<double> bound_use;  // absent: not finite
  std::optional<double> ulp;
  std::optional<double> cosine;
  std::string reason;

  // 0 same .. 6 missing: the larger, the more it wants to be looked at.
  [[nodiscard]] int severity() const;
};

struct Verification {
  std::string file;
  std::string verdict;  // "pass", "fail", "undecided"
  std::string profile;
  std::string config_hash;       // empty where the file has none
  std::string first_divergence;  // in one line; empty when nothing diverged
  std::vector<VerifiedOp> ops = {};
  std::vector<std::string> notes = {};

  [[nodiscard]] std::map<std::string, int64_t> counts() const;  // by status, variants together
  // The worst of each op over cases and experts, by grouped id.
  [[nodiscard]] std::map<std::string, const VerifiedOp*> worst() const;
};

// Throws InputError naming the file and what is missing in it.
Verification read_verification(const std::filesystem::path& path);

// Whether a verdict is about the model of a scenario: the same config, or, where one of them does not say, as many layers.
bool is_same_model(const Verification& verification, const Scenario& scenario);

}  // namespace report
