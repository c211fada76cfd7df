#include "tools/bench/timing.hpp"

#include <benchmark/benchmark.h>

#include <time.h>

#include <algorithm>
#include <limits>
#include <map>

namespace tools {
namespace {

// Keeps the times of each name.
class Keeper : public benchmark::BenchmarkReporter {
 public:
  explicit Keeper(Clock clock) : clock_(clock) {}

  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration) {
        const double total_s = clock_ == Clock::kWall ? run.real_accumulated_time : run.cpu_accumulated_time;
        const double seconds = total_s / static_cast<double>(run.iterations);
        seconds_[run.run_name.function_name].push_back(seconds);
      }
    }
  }
  [[nodiscard]] const std::vector<double>& seconds(const std::string& name) const { return seconds_.at(name); }

 private:
  Clock clock_;
  std::map<std::string, std::vector<double>> seconds_;
};

}  // namespace

double now_s(Clock clock) {
  timespec now{};
  clock_gettime(clock == Clock::kWall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<std::vector<double>> repeated_seconds(const std::vector<Timed>& timed,
                                                  Clock clock,
                                                  double min_time_s,
                                                  int num_repetitions) {
  benchmark::ClearRegisteredBenchmarks();
  for (const Timed& item : timed) {
    benchmark::RegisterBenchmark(item.name.c_str(),
                                 [&item](benchmark::State& state) {
                                   for ([[maybe_unused]] auto iteration : state) {
                                     item.body();
                                   }
                                 })
        ->MinTime(min_time_s)
        ->Repetitions(num_repetitions)
        ->UseRealTime();
  }
  Keeper keeper(clock);
  benchmark::RunSpecifiedBenchmarks(&keeper);
  std::vector<std::vector<double>> all;
  for (const Timed& item : timed) {
    std::ranges::sort(all.emplace_back(keeper.seconds(item.name)));
  }
  return all;
}

std::vector<double> best_seconds(const std::vector<Timed>& timed, Clock clock, double min_time_s, int num_repetitions) {
  std::vector<double> best;
  for (const std::vector<double>& seconds : repeated_seconds(timed, clock, min_time_s, num_repetitions)) {
    best.push_back(seconds.front());
  }
  return best;
}

}  // namespace tools
