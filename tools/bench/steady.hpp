// When a measurement has been repeated often enough.
#pragma once

#include <functional>
#include <vector>

namespace tools {

struct SteadyLimits {
  double noise_frac = 0.005;  // of the median: its standard error
  double max_seconds = 2;     // by `now_s`
  int first_repetitions = 20;
};

// Standard error of the median over the median of times, with the spread taken from the 10th and 90th percentile, so
// that single outliers do not count: 1.2533 (p90 - p10) / 2.5631 / sqrt(n), as for a normal distribution.
double median_noise_frac(const std::vector<double>& times);

// Calls `measure(n)`, which gives n times, with n doubling, until noise or seconds are up. All times.
std::vector<double> repeat_until_steady(const std::function<std::vector<double>(int)>& measure,
                                        const std::function<double()>& now_s,
                                        const SteadyLimits& limits);

}  // namespace tools
