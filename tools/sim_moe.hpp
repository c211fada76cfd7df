// The commands of dsv3-sim about experts: skew, alltoall, and validate --alltoall.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

#include "tools/sim_flags.hpp"

namespace tools {

// Adds the command and returns what runs it; the returned function holds its flags.
std::function<int()> add_skew(CLI::App& app);
std::function<int()> add_alltoall(CLI::App& app);

// Adds --alltoall, --backend and --link to a validate command. The returned function runs it, if --alltoall was given, and prints
// as `output` says.
struct AllToAllValidation {
  CLI::Option* option = nullptr;
  std::function<int()> run;
};
AllToAllValidation add_alltoall_validation(CLI::App& app, std::shared_ptr<const OutputFlags> output);

}  // namespace tools
