// What the mains share: one place that turns exceptions into one line and an exit code, and the common arguments.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "model/weight_source.hpp"

namespace tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitCheckFailed = 1;
inline constexpr int kExitBadInput = 2;

// Parses argv into `app` and runs `job`. --help and --version exit 0; bad usage and bad input print one line and exit 2.
int run_main(CLI::App& app, int argc, char** argv, const std::function<int()>& job);

// Adds --version, and "--help" with the examples under the options.
void describe(CLI::App& app, const std::string& examples);

// Opens what --checkpoint names: a directory, or synthetic:NAME[?seed=N]. Throws InputError.
struct OpenedCheckpoint {
  std::unique_ptr<model::WeightSource> weights;
  std::string hash;  // of config and shard headers; of a generated one, its identity
};
OpenedCheckpoint open_checkpoint(const std::string& argument);

// Comma-separated list, empty items dropped.
std::vector<std::string> split_list(const std::string& text);

// Progress on stderr when it is a terminal: a line that the next one overwrites; nothing otherwise.
void show_progress(const std::string& line);
void clear_progress();

// Number of hardware threads, at least 1.
int default_threads();

}  // namespace tools
