// The command of dsv3-sim that asks a timing table for one call.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/sim_timing.hpp"

namespace tools {

SimCommand add_lookup(CLI::App& app);

}  // namespace tools
