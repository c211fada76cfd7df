#include "tools/bench/steady.hpp"

#include <cmath>

#include "simulator/error_summary.hpp"

namespace tools {

double median_noise_frac(const std::vector<double>& times) {
  constexpr double kErrorOfMedian = 1.2533;  // sqrt(pi / 2): over that of the mean
  constexpr double kDecilesInSigma = 2.5631;
  const double sigma = (simulator::quantile(times, 0.9) - simulator::quantile(times, 0.1)) / kDecilesInSigma;
  return kErrorOfMedian * sigma / std::sqrt(static_cast<double>(times.size())) / simulator::quantile(times, 0.5);
}

std::vector<double> repeat_until_steady(const std::function<std::vector<double>(int)>& measure,
                                        const std::function<double()>& now_s,
                                        const SteadyLimits& limits) {
  const double start_s = now_s();
  std::vector<double> times;
  for (int repetitions = limits.first_repetitions;; repetitions *= 2) {
    const std::vector<double> more = measure(repetitions);
    times.insert(times.end(), more.begin(), more.end());
    if (median_noise_frac(times) <= limits.noise_frac || now_s() - start_s >= limits.max_seconds) {
      return times;
    }
  }
}

}  // namespace tools
