// What a reader should see first: the largest costs, the widest gaps, and layers that stand out.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/scenario.hpp"

namespace report {

// Sums over layers of one op.
struct OpSum {
  std::string op;  // without the layer
  Phase phase = Phase::kOther;
  int64_t num_rows = 0;
  double flops = 0;
  double bytes = 0;
  std::vector<std::optional<double>> us = {};  // of each series; absent where no row has a time
};

std::vector<OpSum> sums_by_op(const Scenario& scenario);
// The same by phase, named after it: what the simulator predicts; its times of single ops are shares of these.
std::vector<OpSum> sums_by_phase(const Scenario& scenario);

// A sum that stays absent until something is added.
void add_to(std::optional<double>& sum, const std::optional<double>& value);

// {"costs", "gaps", "layers"} of the scenario's main series: by op, but by phase where simulated times are in them.
nlohmann::ordered_json findings_json(const Scenario& scenario, const std::vector<OpSum>& by_op);

}  // namespace report
