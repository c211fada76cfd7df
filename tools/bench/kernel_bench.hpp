// Every kernel of a step at DeepSeek-V3's shapes, beside the least that it has to move: what it moves, counted while the emulated device
// runs it, or how long it takes on a GPU. A count is no time, and nothing that the emulation does is given as one.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/engine/backend.hpp"

namespace tools {

enum class KernelPreset { kDecode, kPrefill };
inline constexpr const char* kPresetNames[] = {"decode", "prefill"};

struct KernelBenchFlags {
  KernelPreset preset = KernelPreset::kDecode;
  int64_t num_tokens = 8;      // decode: one a sequence; prefill: of one sequence
  int64_t context_len = 1024;  // decode: keys of each sequence, the new one included; prefill has no earlier ones
  std::string filter;          // only ops whose name contains it
};

// 32-byte sectors that the launches read and those that they write, each counted once in a launch, and the bytes that threads asked for.
struct KernelCounts {
  int64_t sector_bytes = 0;
  int64_t issued_bytes = 0;
};

// Microseconds of one run of a row's launches.
struct KernelTimes {
  double median_us = 0;
  double p10_us = 0;
  double p90_us = 0;
  double noise_frac = 0;  // standard error of the median over the median
  int64_t num_repetitions = 0;
};

struct KernelRow {
  std::string op;     // as in the op list, without the layer; several that one launch covers are joined by '+'
  std::string kind;   // of the op records: "linear", ...
  std::string shape;  // rows x out x in, or what the kernel has instead
  std::string dtype;  // of the products
  KernelPreset preset = KernelPreset::kDecode;
  int64_t num_tokens = 0;
  int64_t context_len = 0;
  int64_t flops = 0;  // of the op list, as the three byte counts are
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;
  int64_t activation_bytes = 0;  // every other tensor of the launches once, in the form it is stored in
  double bar = 0;                // what sector_bytes / minimum_bytes() may be; 0: nobody set one
  std::optional<KernelCounts> counts = {};
  std::optional<KernelTimes> times = {};

  [[nodiscard]] int64_t minimum_bytes() const { return weight_bytes + kv_bytes + activation_bytes; }
  [[nodiscard]] double ratio() const {
    return static_cast<double>(counts->sector_bytes) / static_cast<double>(minimum_bytes());
  }
  [[nodiscard]] bool is_over() const { return counts && bar > 0 && ratio() > bar; }
};

// Where the launches of rows are done, and what is seen of them.
class KernelMeter {
 public:
  virtual ~KernelMeter() = default;
  [[nodiscard]] virtual std::string device_name() const = 0;
  // Of the head and the embedding; the emulation has no time for all of it.
  [[nodiscard]] virtual int64_t vocab_size() const = 0;
  // A device with nothing on it, for one row.
  virtual std::unique_ptr<gpu::Backend> open() = 0;
  // Gives memory that nobody has written yet numbers that occur, where that matters.
  virtual void fill(gpu::Backend& device, std::byte* memory, int64_t num_bytes) = 0;
  // Does the launches, as often as it takes, and writes into the row what it saw.
  virtual void measure(gpu::Backend& device, const std::function<void()>& launches, KernelRow& row) = 0;
};

// Counts in the emulation, with kernels compiled for checking.
std::unique_ptr<KernelMeter> make_counting_meter();
// Times on the first GPU: between two events around one replay of the launches' graph, the L2 overwritten before each, until the noise is
// at most `noise_frac` or `max_seconds` are over. Throws InputError where there is no GPU. Never run so far.
std::unique_ptr<KernelMeter> make_timing_meter(double noise_frac, double max_seconds);

// The kernels of one step in the order of the model; `starting` hears the name of each row before it is measured.
std::vector<KernelRow> bench_kernels(const KernelBenchFlags& flags,
                                     KernelMeter& meter,
                                     const std::function<void(const std::string&)>& starting);

// The subcommand's options; what it does when chosen. Exit status 1: a launch moves more than its bar allows.
std::function<int()> add_kernel_bench(CLI::App& app);

}  // namespace tools
