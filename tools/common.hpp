// What the programs share besides their options: exit codes, checkpoints by name, lists, progress.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/weight_source.hpp"

namespace tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitCheckFailed = 1;
inline constexpr int kExitBadInput = 2;

// Opens what --checkpoint names: a directory, or synthetic:NAME[?seed=N]. Throws InputError.
struct OpenedCheckpoint {
  std::unique_ptr<model::WeightSource> weights;
  std::string hash;  // of config and shard headers; of a generated one, its identity
  bool hashes_weights =
      true;  // false: `hash` stands for every bit, and reading all weights again for their hashes would take long
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
