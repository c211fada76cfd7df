// What `dsv3-sim estimate` and `dsv3-sim explain` print of a deployment under load.
#pragma once

#include <vector>

#include "simulator/serving.hpp"
#include "simulator/table.hpp"

namespace simulator {

// "estimate" (a record), "memory", "costs" (decode step, largest first), "notes".
std::vector<Table> estimate_tables(const Deployment& deployment, const Serving& serving, const StepSpread& spread);

// "decode_step" and "prompt": every leaf with calls, formula, bytes, FLOPs, floor, share and source. The times add up to the total
// of the last row.
std::vector<Table> explain_tables(const Serving& serving, const std::vector<ChosenFit>& fits);

}  // namespace simulator
