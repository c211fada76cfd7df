#include "tools/bench/host_bench.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "model/atomic_file.hpp"
#include "reference/simd/kernels.hpp"
#include "simulator/search.hpp"
#include "tools/bench/machine.hpp"
#include "tools/bench/records.hpp"
#include "tools/bench/timing.hpp"
#include "tools/cli.hpp"

namespace tools {
namespace {

struct HostFlags {
  BenchFlags bench;
  std::string out;
  std::string hardware;
  bool json = false;
};

void add_measuring(CLI::App& app, HostFlags& flags) {
  app.add_option("--min-time", flags.bench.min_time_s, "seconds of each measurement, at least")->capture_default_str();
  app.add_option("--repetitions", flags.bench.num_repetitions, "measurements of each; the best counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--json", flags.json, "for machines");
}

// A hardware file of dsv3-sim whose figures are the machine's own. It has no links; they are there because the file has to have them.
void write_hardware(const std::string& path, const MachineLimits& limits) {
  const auto figure = [](double value, const std::string& source) {
    return nlohmann::ordered_json{{"value", value}, {"source", source}};
  };
  const std::string no_link = "no link: one machine, its memory rate stands in";
  const nlohmann::ordered_json hardware{
      {"title", cpu_name()},
      {"bf16_dense_tflops", figure(2 * limits.fma_gmac_per_s / 1e3, "dsv3-bench host: FP32 multiply-add loop")},
      {"memory_gb",
       figure(static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / (1 << 30),
              "the operating system")},
      {"memory_gb_per_s", figure(limits.read_gb_per_s, "dsv3-bench host: reading a large buffer")},
      {"nvlink_gb_per_s", figure(limits.read_gb_per_s, no_link)},
      {"nvlink_domain_gpus", figure(1, "one machine")},
      {"nic_gb_per_s", figure(limits.read_gb_per_s, no_link)}};
  const std::string text = hardware.dump(1) + "\n";
  model::AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

int run_host(const HostFlags& flags) {
  const MachineLimits limits = measure_limits(flags.bench);
  if (!flags.out.empty()) {
    write_bench_records(flags.out, records_of(limits), flags.bench.num_threads);
  }
  if (!flags.hardware.empty()) {
    write_hardware(flags.hardware, limits);
  }
  const auto level = reference::simd::level_name(reference::simd::kernels().level);
  if (flags.json) {
    const nlohmann::ordered_json out{{"cpu", cpu_name()},
                                     {"simd", level},
                                     {"threads", flags.bench.num_threads},
                                     {"fma_peak_gmac_per_s", limits.fma_gmac_per_s},
                                     {"read_gb_per_s", limits.read_gb_per_s},
                                     {"read_buffer_bytes", limits.buffer_bytes}};
    fmt::print("{}\n", out.dump(1));
  } else {
    fmt::print("{}, {}, {} thread{}\nFP32 FMA loop {:.1f} GMAC/s; read {:.1f} GB/s (buffer {} MiB)\n",
               cpu_name(),
               level,
               flags.bench.num_threads,
               flags.bench.num_threads == 1 ? "" : "s",
               limits.fma_gmac_per_s,
               limits.read_gb_per_s,
               limits.buffer_bytes >> 20);
  }
  return kExitOk;
}

// Every run starts from nothing: constants read, curves empty.
std::vector<Timed> simulator_jobs() {
  using namespace simulator;
  const auto estimate = [](const char* layout, double batch) {
    const Deployment deployment =
        build_deployment({.gpu = "h200", .batch = batch, .decode_only = true, .layout = parse_shorthand(layout)});
    const auto fits = choose_fits(built_in_calibrations(), deployment.hardware);
    MoeCurves curves;
    const Serving serving = serve(deployment, fits, curves);
    return std::tuple(deployment, fits, serving);
  };
  return {
      {"start-up: constants and hardware", [] { (void)choose_fits(built_in_calibrations(), load_hardware("h200")); }},
      {"estimate of tp8, 32 sequences", [=] { (void)estimate("tp8", 32); }},
      {"Monte Carlo: 100 steps of dep64, 128 sequences",
       [=] {
         const auto [deployment, fits, serving] = estimate("dep64", 128);
         MoeCurves curves;
         (void)step_spread(deployment, fits, curves, serving);
       }},
      {"search over 64 GPUs", [] {
         MoeCurves curves;
         (void)search(
             {.base = {.gpu = "h200", .decode_only = true}, .gpus = {64}}, built_in_calibrations(), {}, curves);
       }}};
}

int run_simulator(const HostFlags& flags) {
  const std::vector<Timed> jobs = simulator_jobs();
  const std::vector<double> seconds =
      best_seconds(jobs, clock_of(flags.bench.num_threads), flags.bench.min_time_s, flags.bench.num_repetitions);
  if (flags.json) {
    nlohmann::ordered_json out{{"cpu", cpu_name()}, {"jobs", nlohmann::ordered_json::array()}};
    for (size_t i = 0; i < jobs.size(); ++i) {
      out["jobs"].push_back({{"job", jobs[i].name}, {"ms", seconds[i] * 1e3}});
    }
    fmt::print("{}\n", out.dump(1));
    return kExitOk;
  }
  fmt::print("{}\n", cpu_name());
  for (size_t i = 0; i < jobs.size(); ++i) {
    fmt::print("{:48}  {:10.3f} ms\n", jobs[i].name, seconds[i] * 1e3);
  }
  return kExitOk;
}

}  // namespace

std::function<int()> add_host_bench(CLI::App& app) {
  const auto flags = std::make_shared<HostFlags>();
  app.add_option("--threads", flags->bench.num_threads, "threads of every loop")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  add_measuring(app, *flags);
  app.add_option("--out", flags->out, "write both as op records: dsv3-report draws the CPU's roofline from them");
  app.add_option("--hardware", flags->hardware, "write a hardware file of dsv3-sim with the two figures");
  return [flags] { return run_host(*flags); };
}

std::function<int()> add_simulator_bench(CLI::App& app) {
  const auto flags = std::make_shared<HostFlags>();
  add_measuring(app, *flags);
  return [flags] { return run_simulator(*flags); };
}

}  // namespace tools
