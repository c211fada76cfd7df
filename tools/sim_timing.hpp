// Commands of dsv3-sim that speak of time: estimate, explain, calibrate, validate.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

namespace tools {

// A command and what it does once it is parsed; the flags live in `run`.
struct SimCommand {
  CLI::App* parsed = nullptr;
  std::function<int()> run;
};

std::vector<SimCommand> add_timing_commands(CLI::App& app);

}  // namespace tools
