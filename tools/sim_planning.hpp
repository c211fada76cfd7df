// Commands of dsv3-sim that choose between deployments: search, compare, sensitivity, pipeline.
#pragma once

#include <CLI/CLI.hpp>
#include <vector>

#include "tools/sim_timing.hpp"

namespace tools {

std::vector<SimCommand> add_planning_commands(CLI::App& app);

}  // namespace tools
