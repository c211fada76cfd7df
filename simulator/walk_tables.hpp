// A walk as tables: the deployment it belongs to, its steps, and the figures behind the floors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/floor.hpp"
#include "simulator/step_shares.hpp"
#include "simulator/table.hpp"
#include "simulator/walk.hpp"

namespace simulator {

struct WalkTables {
  const model::ParallelPlan& plan;
  const Walk& walk;
  const Hardware& hardware;
  bool merge_layers = true;              // consecutive layers that differ in nothing but their number share their rows
  std::optional<StepShares> times = {};  // predicted; absent: the column stays empty
  std::string predicted_by = {};         // which constants, or why there is no prediction
};

// "deployment", "walk", "hardware".
std::vector<Table> walk_tables(const WalkTables& from);

}  // namespace simulator
