// What the decode kernels move, counted while the emulated device runs them: unique 32-byte sectors and issued bytes of each launch
// beside the least that the op list and the launch's own tensors allow. Nothing here is a time.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tools {

struct KernelBenchFlags {
  int64_t num_tokens = 8;      // one a sequence
  int64_t context_len = 1024;  // keys of each sequence, the new one included
  std::string filter;          // only ops whose name contains it
};

struct KernelRow {
  std::string op;     // as in the op list, without the layer; several that one launch covers are joined by '+'
  std::string shape;  // rows x out x in, or what the kernel has instead
  int64_t flops = 0;  // of the op list
  int64_t minimum_bytes = 0;
  int64_t sector_bytes = 0;  // 32 for each sector that a launch reads, and for each that it writes
  int64_t issued_bytes = 0;  // as the threads asked for them
  double bar = 0;            // what sector_bytes / minimum_bytes may be

  [[nodiscard]] double ratio() const { return static_cast<double>(sector_bytes) / static_cast<double>(minimum_bytes); }
  [[nodiscard]] bool is_over() const { return ratio() > bar; }
};

// One decode step's kernels at the shapes of DeepSeek-V3; the vocabulary is cut to 4096. minimum_bytes: weights and keys as the op list
// counts them (of the experts those that somebody chose), every other tensor of the launch once in the form it is stored in.
std::vector<KernelRow> count_kernels(const KernelBenchFlags& flags);

// The subcommand's options; what it does when chosen. Exit status 1: a launch moves more than its bar allows.
std::function<int()> add_kernel_bench(CLI::App& app);

}  // namespace tools
