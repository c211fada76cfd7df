#include "tools/bench/timing.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <limits>
#include <map>

namespace tools {
namespace {

// Keeps the best time of each name.
class Keeper : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration) {
        const double seconds = run.real_accumulated_time / static_cast<double>(run.iterations);
        const auto [place, is_new] = best_s_.emplace(run.run_name.function_name, seconds);
        place->second = std::min(place->second, seconds);
      }
    }
  }
  [[nodiscard]] double best_s(const std::string& name) const { return best_s_.at(name); }

 private:
  std::map<std::string, double> best_s_;
};

}  // namespace

std::vector<double> best_seconds(const std::vector<Timed>& timed, double min_time_s, int num_repetitions) {
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
  Keeper keeper;
  benchmark::RunSpecifiedBenchmarks(&keeper);
  std::vector<double> seconds;
  for (const Timed& item : timed) {
    seconds.push_back(keeper.best_s(item.name));
  }
  return seconds;
}

}  // namespace tools
