// dsv3-bench host and simulator: what this machine can do, and how long the simulator itself takes.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tools {

// Adds the command and returns what runs it; the returned function holds its flags.
std::function<int()> add_host_bench(CLI::App& app);
std::function<int()> add_simulator_bench(CLI::App& app);

}  // namespace tools
