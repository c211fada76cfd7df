// dsv3-bench kernels: options and output.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/bench/kernel_bench.hpp"
#include "tools/cli.hpp"

namespace tools {
namespace {

struct KernelFlags {
  KernelBenchFlags bench;
  std::string device = "emulated";
  bool json = false;
};

int run(const KernelFlags& flags) {
  const auto rows = count_kernels(flags.bench);
  if (flags.json) {
    auto out = nlohmann::ordered_json::array();
    for (const KernelRow& row : rows) {
      out.push_back({{"op", row.op},
                     {"shape", row.shape},
                     {"flops", row.flops},
                     {"minimum_bytes", row.minimum_bytes},
                     {"sector_bytes", row.sector_bytes},
                     {"issued_bytes", row.issued_bytes},
                     {"ratio", row.ratio()},
                     {"bar", row.bar}});
    }
    fmt::print("{}\n", out.dump(1));
  } else {
    fmt::print("{:31} {:29} {:>9} {:>11} {:>11} {:>7} {:>5} {:>7}\n",
               "op",
               "shape",
               "MFLOP",
               "minimum kB",
               "sectors kB",
               "ratio",
               "bar",
               "issued");
    for (const KernelRow& row : rows) {
      fmt::print("{:31} {:29} {:9.1f} {:11.1f} {:11.1f} {:7.3f} {:5.2f} {:7.2f}{}\n",
                 row.op,
                 row.shape,
                 static_cast<double>(row.flops) / 1e6,
                 static_cast<double>(row.minimum_bytes) / 1e3,
                 static_cast<double>(row.sector_bytes) / 1e3,
                 row.ratio(),
                 row.bar,
                 static_cast<double>(row.issued_bytes) / static_cast<double>(row.minimum_bytes),
                 row.is_over() ? "  over" : "");
    }
  }
  return std::ranges::any_of(rows, &KernelRow::is_over) ? kExitCheckFailed : kExitOk;
}

}  // namespace

std::function<int()> add_kernel_bench(CLI::App& app) {
  const auto shared = std::make_shared<KernelFlags>();
  KernelFlags& flags = *shared;
  app.add_option("--device", flags.device, "where the kernels run")
      ->check(CLI::IsMember({"emulated"}))
      ->capture_default_str();
  app.add_option("--tokens", flags.bench.num_tokens, "of the decode step, one a sequence")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--context", flags.bench.context_len, "keys of each sequence")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--filter", flags.bench.filter, "only ops with this in their name");
  app.add_flag("--json", flags.json, "for machines");
  app.footer(
      "\nExit status 1: a launch moves more than its bar allows.\n"
      "\nExamples:\n"
      "  $ dsv3-bench kernels --device emulated\n"
      "  $ dsv3-bench kernels --tokens 1 --filter attn --json\n");
  return [shared] { return run(*shared); };
}

}  // namespace tools
