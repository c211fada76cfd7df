// Google Benchmark run from code, with its numbers handed back in place of being printed.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tools {

struct Timed {
  std::string name;
  std::function<void()> body;  // one iteration
};

// Which seconds: of a clock on the wall, or those that this thread had a core. The second is what one thread's work takes on a
// machine that others use too.
enum class Clock { kWall, kThread };
inline Clock clock_of(int num_threads) {
  return num_threads == 1 ? Clock::kThread : Clock::kWall;
}
double now_s(Clock clock);

// Seconds of one iteration of each, in ascending order over `num_repetitions` runs of at least `min_time_s` each.
std::vector<std::vector<double>> repeated_seconds(const std::vector<Timed>& timed,
                                                  Clock clock,
                                                  double min_time_s,
                                                  int num_repetitions);

// Seconds of one iteration of each, the best of `num_repetitions` runs of at least `min_time_s` each: on a machine that others use
// too, the best run is the one they disturbed least.
std::vector<double> best_seconds(const std::vector<Timed>& timed, Clock clock, double min_time_s, int num_repetitions);

}  // namespace tools
