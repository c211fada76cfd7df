// What the mains share: one place that turns exceptions into one line and an exit code, and the common options.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "tools/common.hpp"

namespace tools {

// Parses argv into `app` and runs `job`. --help and --version exit 0; bad usage and bad input print one line and exit 2.
int run_main(CLI::App& app, int argc, char** argv, const std::function<int()>& job);

// Adds --version, and "--help" with the examples under the options.
void describe(CLI::App& app, const std::string& examples);

// Adds "--seed". CLI11 lets a minus sign wrap around; here a seed is a whole number from 0 to 2^64 - 1.
CLI::Option* add_seed(CLI::App& app, uint64_t& seed, const std::string& what);

}  // namespace tools
