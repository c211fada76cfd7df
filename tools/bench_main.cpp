// dsv3-bench: how fast the CPU reference is, beside what the machine itself can do.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "reference/simd/kernels.hpp"
#include "tools/bench/host_bench.hpp"
#include "tools/bench/kernel_bench.hpp"
#include "tools/bench/links_bench.hpp"
#include "tools/bench/machine.hpp"
#include "tools/bench/records.hpp"
#include "tools/bench/reference_bench.hpp"
#include "tools/cli.hpp"

namespace tools {
namespace {

struct ReferenceFlags {
  BenchFlags bench;
  std::string simd;
  std::string checkpoint = "golden/data/mini/checkpoint";
  bool end_to_end = false;
  bool json = false;
  std::string out;
};

void choose_level(const std::string& name) {
  const auto level = reference::simd::parse_level(name);
  if (!level) {
    model::throw_input_error("--simd {}: expected baseline, avx2 or avx512", name);
  }
  reference::simd::use_level(*level);
}

// What the ports leave of the multiply-add peak.
std::optional<double> bound_of(const LinearRow& row, const MachineLimits& limits) {
  if (!row.port_count) {
    return std::nullopt;
  }
  return port_bound_frac(*row.port_count,
                         {.gmac_per_s = limits.fma_gmac_per_s,
                          .gload_per_s = limits.cached_gload_per_s,
                          .goperation_per_s = limits.goperation_per_s,
                          .read_gb_per_s = limits.read_gb_per_s},
                         reference::simd::kernels().level);
}

// The weights that this is, of few rows of x.
double bound_gb_per_s(const PortCount& count, double bound, const MachineLimits& limits) {
  return bound * limits.fma_gmac_per_s * count.num_weight_bytes / count.num_products;
}

// What that rests on, once for each format and count.
void print_bounds(const std::vector<LinearRow>& linears, const MachineLimits& limits, const std::string& mode) {
  std::set<std::string> said;
  for (const LinearRow& row : linears) {
    if (!row.port_count) {
      continue;
    }
    const PortCount& count = *row.port_count;
    const double bound = *bound_of(row, limits);
    std::string line = fmt::format("{} {}: {} products take {:.0f} operations and {:.0f} loads of whole vectors",
                                   mode,
                                   row.format,
                                   count.num_products,
                                   std::max(count.num_operations, count.num_vector_operations),
                                   count.num_loads);
    line += count.num_weight_bytes == 0
                ? fmt::format(": at most {:.2f} of peak", bound)
                : fmt::format(" for {} bytes of weights: with {} token{} at most {:.1f} GB/s, {:.2f} of read",
                              count.num_weight_bytes,
                              row.num_tokens,
                              row.num_tokens == 1 ? "" : "s",
                              bound_gb_per_s(count, bound, limits),
                              bound_gb_per_s(count, bound, limits) / limits.read_gb_per_s);
    if (said.insert(line).second) {
      fmt::print("{}\n", line);
    }
  }
}

void print_json(const MachineLimits& limits,
                const std::vector<LinearRow>& linears,
                const std::vector<EndToEndRow>& end_to_end,
                const BenchFlags& flags) {
  nlohmann::ordered_json out{{"cpu", cpu_name()},
                             {"simd", reference::simd::level_name(reference::simd::kernels().level)},
                             {"threads", flags.num_threads},
                             {"fma_peak_gmac_per_s", limits.fma_gmac_per_s},
                             {"fma_gain", limits.fma_gain},
                             {"cached_gload_per_s", limits.cached_gload_per_s},
                             {"vector_goperation_per_s", limits.goperation_per_s},
                             {"read_gb_per_s", limits.read_gb_per_s},
                             {"read_buffer_bytes", limits.buffer_bytes},
                             {"linears", nlohmann::ordered_json::array()},
                             {"end_to_end", nlohmann::ordered_json::array()}};
  for (const LinearRow& row : linears) {
    const auto bound = bound_of(row, limits);
    out["linears"].push_back({{"model", row.model},
                              {"op", row.op},
                              {"format", row.format},
                              {"out_dim", row.out_dim},
                              {"in_dim", row.in_dim},
                              {"num_tokens", row.num_tokens},
                              {"gmac_per_s", row.gmac_per_s},
                              {"fma_peak_frac", row.gmac_per_s / limits.fma_gmac_per_s},
                              {"port_bound_frac", bound ? nlohmann::ordered_json(*bound) : nullptr},
                              {"weight_gb_per_s", row.weight_gb_per_s},
                              {"read_frac", row.weight_gb_per_s / limits.read_gb_per_s},
                              {"gain", row.gain}});
  }
  for (const EndToEndRow& row : end_to_end) {
    out["end_to_end"].push_back({{"phase", row.phase},
                                 {"num_tokens", row.num_tokens},
                                 {"num_cached", row.num_cached},
                                 {"tokens_per_s", row.tokens_per_s},
                                 {"gmac_per_s", row.gmac_per_s},
                                 {"fma_peak_frac", row.gmac_per_s / limits.fma_gmac_per_s}});
  }
  fmt::print("{}\n", out.dump(1));
}

void print_text(const MachineLimits& limits,
                const std::vector<LinearRow>& linears,
                const std::vector<EndToEndRow>& end_to_end,
                const BenchFlags& flags) {
  fmt::print("{}, {}, {} thread{}\n",
             cpu_name(),
             reference::simd::level_name(reference::simd::kernels().level),
             flags.num_threads,
             flags.num_threads == 1 ? "" : "s");
  fmt::print(
      "FP32 FMA loop {:.1f} GMAC/s; {:.2f} G vectors/s from the first cache, {:.2f} G operations/s on them; read "
      "{:.1f} GB/s "
      "(buffer {} MiB)\n",
      limits.fma_gmac_per_s,
      limits.cached_gload_per_s,
      limits.goperation_per_s,
      limits.read_gb_per_s,
      limits.buffer_bytes >> 20);
  const bool shows_gain = flags.num_threads > 1;
  if (shows_gain) {
    fmt::print("{} threads gain {:.2f} in the FMA loop; of gain: what a linear gains, over that\n",
               flags.num_threads,
               limits.fma_gain);
  }
  if (!linears.empty()) {
    print_bounds(linears, limits, flags.mode);
    fmt::print("model  op               format     out      in  tokens  GMAC/s  of peak  of bound    GB/s  of read{}\n",
               shows_gain ? "  of gain" : "");
  }
  for (const LinearRow& row : linears) {
    const double peak_frac = row.gmac_per_s / limits.fma_gmac_per_s;
    const auto bound = bound_of(row, limits);
    fmt::print("{:5}  {:15}  {:6}  {:6}  {:6}  {:6}  {:6.1f}  {:7.2f}  {:>8}  {:6.1f}  {:7.2f}{}\n",
               row.model,
               row.op,
               row.format,
               row.out_dim,
               row.in_dim,
               row.num_tokens,
               row.gmac_per_s,
               peak_frac,
               bound ? fmt::format("{:.2f}", peak_frac / *bound) : "-",
               row.weight_gb_per_s,
               row.weight_gb_per_s / limits.read_gb_per_s,
               shows_gain ? fmt::format("  {:7.2f}", row.gain / limits.fma_gain) : "");
  }
  if (!end_to_end.empty()) {
    fmt::print("phase    tokens  cached  tokens/s  GMAC/s  of peak\n");
  }
  for (const EndToEndRow& row : end_to_end) {
    fmt::print("{:7}  {:6}  {:6}  {:8.0f}  {:6.1f}  {:7.3f}\n",
               row.phase,
               row.num_tokens,
               row.num_cached,
               row.tokens_per_s,
               row.gmac_per_s,
               row.gmac_per_s / limits.fma_gmac_per_s);
  }
}

int run_reference(const ReferenceFlags& flags) {
  if (!flags.simd.empty()) {
    choose_level(flags.simd);
  }
  std::vector<EndToEndRow> end_to_end;
  std::vector<LinearRow> linears;
  const auto limits = measure_limits(flags.bench);
  if (flags.end_to_end) {
    end_to_end = measure_end_to_end(flags.bench, *open_checkpoint(flags.checkpoint).weights);
  } else {
    linears = measure_linears(flags.bench, limits);
  }
  if (!flags.out.empty()) {
    auto records = records_of(limits);
    const auto more = records_of(linears);
    records.insert(records.end(), more.begin(), more.end());
    write_bench_records(flags.out, std::move(records), flags.bench.num_threads);
  }
  (flags.json ? print_json : print_text)(limits, linears, end_to_end, flags.bench);
  return kExitOk;
}

void add_reference(CLI::App& app, ReferenceFlags& flags) {
  app.add_option("--threads", flags.bench.num_threads, "threads of every loop")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--simd", flags.simd, "baseline, avx2 or avx512 (default: the highest this machine has)");
  app.add_option("--filter", flags.bench.filter, "only linears with this in \"model op format\"");
  app.add_option("--mode", flags.bench.mode, "of the linears: published, fast, hopper, ... (an arithmetic with FP8)")
      ->capture_default_str();
  app.add_option("--min-time", flags.bench.min_time_s, "seconds of each measurement, at least")->capture_default_str();
  app.add_option("--repetitions",
                 flags.bench.num_repetitions,
                 "measurements of each; the best is shown, their median goes to --out")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--checkpoint", flags.checkpoint, "of --end-to-end: a directory, or synthetic:NAME")
      ->capture_default_str();
  app.add_flag("--end-to-end", flags.end_to_end, "tokens per second of a checkpoint in place of single linears");
  app.add_flag("--json", flags.json, "for machines");
  app.add_option("--out", flags.out, "write the linears and the machine's limits as op records (docs/op-records.md)");
  app.footer(
      "\nExamples:\n"
      "  $ dsv3-bench reference --filter \"v3 attn.o_proj fp8\"\n"
      "  $ dsv3-bench reference --filter \"v3 attn.o_proj\" --mode hopper\n"
      "  $ dsv3-bench reference --end-to-end\n"
      "  $ dsv3-bench reference --simd avx2 --threads 2 --json\n");
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  CLI::App app{"Measures the CPU reference, this machine, its ranks and the simulator; counts what the kernels move.",
               "dsv3-bench"};
  tools::describe(app, "Each subcommand has a --help of its own.");
  app.require_subcommand(1);
  tools::ReferenceFlags flags;
  auto* reference =
      app.add_subcommand("reference", "linears and whole tokens, beside the machine's FMA peak and bandwidth");
  tools::add_reference(*reference, flags);
  auto* host = app.add_subcommand("host", "the machine's own FMA peak and read bandwidth");
  const auto run_host = tools::add_host_bench(*host);
  auto* kernels = app.add_subcommand(
      "kernels", "bytes that each decode kernel moves at DeepSeek-V3's shapes, beside the least that it has to");
  const auto run_kernels = tools::add_kernel_bench(*kernels);
  auto* links = app.add_subcommand("links", "collectives, dispatch and combine over each way of connecting ranks");
  const auto run_links = tools::add_links_bench(*links);
  auto* simulator = app.add_subcommand("simulator", "how long the simulator's own jobs take");
  const auto run_simulator = tools::add_simulator_bench(*simulator);
  return tools::run_main(app, argc, argv, [&] {
    return host->parsed()        ? run_host()
           : kernels->parsed()   ? run_kernels()
           : links->parsed()     ? run_links()
           : simulator->parsed() ? run_simulator()
                                 : tools::run_reference(flags);
  });
}
