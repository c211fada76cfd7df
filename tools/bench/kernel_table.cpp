// dsv3-bench kernels: options and output.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "model/op_record.hpp"
#include "tools/bench/kernel_bench.hpp"
#include "tools/cli.hpp"
#include "version.hpp"

namespace tools {
namespace {

struct KernelFlags {
  KernelBenchFlags bench;
  std::vector<int64_t> num_tokens;  // none: by preset
  std::string device = "emulated";
  double noise_pct = 0.5;
  double max_seconds = 2;
  std::string out;
  bool json = false;

  [[nodiscard]] bool counts() const { return device == "emulated"; }
};

double giga_per_s(double amount, const KernelTimes& times) {
  return amount / times.median_us / 1e3;
}

nlohmann::ordered_json json_of(const KernelRow& row) {
  nlohmann::ordered_json out{{"op", row.op},
                             {"preset", kPresetNames[static_cast<int>(row.preset)]},
                             {"tokens", row.num_tokens},
                             {"shape", row.shape},
                             {"flops", row.flops},
                             {"minimum_bytes", row.minimum_bytes()}};
  if (row.counts) {
    out["sector_bytes"] = row.counts->sector_bytes;
    out["issued_bytes"] = row.counts->issued_bytes;
    out["ratio"] = row.ratio();
    out["bar"] = row.bar > 0 ? nlohmann::ordered_json(row.bar) : nullptr;
  }
  if (row.times) {
    out["time_us"] = row.times->median_us;
    out["time_us_p10"] = row.times->p10_us;
    out["time_us_p90"] = row.times->p90_us;
    out["noise_pct"] = 100 * row.times->noise_frac;
    out["repetitions"] = row.times->num_repetitions;
    out["minimum_gb_per_s"] = giga_per_s(static_cast<double>(row.minimum_bytes()), *row.times);
    out["tflops"] = giga_per_s(static_cast<double>(row.flops), *row.times) / 1e3;
  }
  return out;
}

void print_counts(const std::vector<KernelRow>& rows) {
  fmt::print("{:31} {:35} {:>9} {:>11} {:>11} {:>7} {:>5} {:>7}\n",
             "op",
             "shape",
             "MFLOP",
             "minimum kB",
             "sectors kB",
             "ratio",
             "bar",
             "issued");
  for (const KernelRow& row : rows) {
    fmt::print("{:31} {:35} {:9.1f} {:11.1f} {:11.1f} {:7.3f} {:>5} {:7.2f}{}\n",
               row.op,
               row.shape,
               static_cast<double>(row.flops) / 1e6,
               static_cast<double>(row.minimum_bytes()) / 1e3,
               static_cast<double>(row.counts->sector_bytes) / 1e3,
               row.ratio(),
               row.bar > 0 ? fmt::format("{:.2f}", row.bar) : "-",
               static_cast<double>(row.counts->issued_bytes) / static_cast<double>(row.minimum_bytes()),
               row.is_over() ? "  over" : "");
  }
}

void print_times(const std::vector<KernelRow>& rows, const std::string& device) {
  fmt::print("{}; cold L2, one graph a row\n", device);
  fmt::print("{:31} {:35} {:>10} {:>10} {:>10} {:>7} {:>6} {:>9} {:>8}\n",
             "op",
             "shape",
             "time us",
             "p10 us",
             "p90 us",
             "noise %",
             "times",
             "min GB/s",
             "TFLOP/s");
  for (const KernelRow& row : rows) {
    fmt::print("{:31} {:35} {:10.2f} {:10.2f} {:10.2f} {:7.2f} {:6} {:9.0f} {:8.1f}\n",
               row.op,
               row.shape,
               row.times->median_us,
               row.times->p10_us,
               row.times->p90_us,
               100 * row.times->noise_frac,
               row.times->num_repetitions,
               giga_per_s(static_cast<double>(row.minimum_bytes()), *row.times),
               giga_per_s(static_cast<double>(row.flops), *row.times) / 1e3);
  }
}

void write_records(const std::string& path, const std::vector<KernelRow>& rows, const std::string& device) {
  model::OpRecordFile file{.header = {"engine=kernels one by one, cold L2"}, .records = {}};
  for (const KernelRow& row : rows) {
    file.records.push_back({.op = "bench.v3." + row.op,
                            .kind = row.kind,
                            .phase = kPresetNames[static_cast<int>(row.preset)],
                            .tokens = row.num_tokens,
                            .context_len = row.context_len,
                            .dtype = row.dtype,
                            .flops = row.flops,
                            .weight_bytes = row.weight_bytes,
                            .activation_bytes = row.activation_bytes,
                            .kv_bytes = row.kv_bytes,
                            .time_us = row.times->median_us,
                            .time_us_p10 = row.times->p10_us,
                            .time_us_p90 = row.times->p90_us,
                            .repetitions = row.times->num_repetitions,
                            .source = model::RecordSource::kCuda,
                            .device = device,
                            .commit = DSV3_COMMIT});
  }
  model::write_op_records(path, file);
}

// Every count of tokens, row by row; where somebody watches, the row at work.
std::vector<KernelRow> bench_all(const KernelFlags& flags, KernelMeter& meter) {
  const int64_t usual_tokens = flags.bench.preset == KernelPreset::kDecode ? 8 : 128;
  const bool is_watched = isatty(STDERR_FILENO) != 0;
  std::vector<KernelRow> rows;
  for (const int64_t tokens : flags.num_tokens.empty() ? std::vector{usual_tokens} : flags.num_tokens) {
    KernelBenchFlags bench = flags.bench;
    bench.num_tokens = tokens;
    const auto more = bench_kernels(bench, meter, [&](const std::string& op) {
      if (is_watched) {
        fmt::print(stderr, "\r\x1b[K{} tokens: {}", tokens, op);
      }
    });
    rows.insert(rows.end(), more.begin(), more.end());
  }
  if (is_watched) {
    fmt::print(stderr, "\r\x1b[K");
  }
  if (rows.empty()) {
    model::throw_input_error("--filter {}: no op has that in its name", flags.bench.filter);
  }
  return rows;
}

int run(const KernelFlags& flags) {
  if (flags.counts() && !flags.out.empty()) {
    model::throw_input_error("--out {}: op records hold times, and the emulation has none; --device cuda", flags.out);
  }
  const auto meter =
      flags.counts() ? make_counting_meter() : make_timing_meter(flags.noise_pct / 100, flags.max_seconds);
  const auto rows = bench_all(flags, *meter);
  if (!flags.out.empty()) {
    write_records(flags.out, rows, meter->device_name());
  }
  if (flags.json) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    std::ranges::transform(rows, std::back_inserter(out), json_of);
    fmt::print("{}\n", nlohmann::ordered_json{{"device", meter->device_name()}, {"rows", out}}.dump(1));
  } else if (flags.counts()) {
    print_counts(rows);
  } else {
    print_times(rows, meter->device_name());
  }
  return std::ranges::any_of(rows, &KernelRow::is_over) ? kExitCheckFailed : kExitOk;
}

}  // namespace

std::function<int()> add_kernel_bench(CLI::App& app) {
  const auto shared = std::make_shared<KernelFlags>();
  KernelFlags& flags = *shared;
  app.add_option("--device", flags.device, "emulated counts what kernels move; cuda times them on the first GPU")
      ->check(CLI::IsMember({"emulated", "cuda"}))
      ->capture_default_str();
  app.add_option("--preset", flags.bench.preset, "which step: decode, or prefill of one sequence")
      ->transform(CLI::CheckedTransformer(std::map<std::string, KernelPreset>{
          {kPresetNames[0], KernelPreset::kDecode}, {kPresetNames[1], KernelPreset::kPrefill}}))
      ->default_str(kPresetNames[0]);
  app.add_option("--tokens", flags.num_tokens, "of the step, several with commas (default 8; prefill 128)")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536));
  app.add_option("--context", flags.bench.context_len, "keys of each sequence that decodes")
      ->check(CLI::Range(1, 131072))
      ->capture_default_str();
  app.add_option("--filter", flags.bench.filter, "only ops with this in their name");
  app.add_option("--noise", flags.noise_pct, "cuda: repeat until the median's standard error is at most this, in %")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--max-time", flags.max_seconds, "cuda: or until a row took this many seconds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--out", flags.out, "cuda: write the times as op records (docs/op-records.md)");
  app.add_flag("--json", flags.json, "for machines");
  app.footer(
      "\nExit status 1: a launch moves more than its bar allows. --device cuda has not been run on a GPU so far.\n"
      "\nExamples:\n"
      "  $ dsv3-bench kernels --device emulated\n"
      "  $ dsv3-bench kernels --tokens 1,8,64 --filter attn --json\n"
      "  $ dsv3-bench kernels --preset prefill --tokens 64\n"
      "  $ dsv3-bench kernels --device cuda --tokens 1,4,16,64 --out kernels.csv\n");
  return [shared] { return run(*shared); };
}

}  // namespace tools
