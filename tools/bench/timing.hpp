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

// Seconds of one iteration of each, the best of `num_repetitions` runs of at least `min_time_s` each: on a machine that others use
// too, the best run is the one they disturbed least.
std::vector<double> best_seconds(const std::vector<Timed>& timed, double min_time_s, int num_repetitions);

}  // namespace tools
