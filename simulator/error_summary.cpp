#include "simulator/error_summary.hpp"

#include <algorithm>
#include <cmath>

#include "model/check.hpp"

namespace simulator {

double quantile(std::vector<double> values, double fraction) {
  CHECK(fraction >= 0 && fraction <= 1);
  if (values.empty()) {
    return 0;
  }
  std::ranges::sort(values);
  const double at = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

ErrorSummary summarise(const std::vector<Comparison>& comparisons) {
  ErrorSummary summary{.rows = static_cast<int64_t>(comparisons.size())};
  std::vector<double> errors;
  for (const Comparison& comparison : comparisons) {
    errors.push_back(std::abs(comparison.error_pct()));
    summary.bias_pct += comparison.error_pct() / static_cast<double>(comparisons.size());
    summary.coverage_90_pct += comparison.is_covered() ? 100.0 / static_cast<double>(comparisons.size()) : 0;
  }
  summary.median_abs_error_pct = quantile(errors, 0.5);
  summary.p90_abs_error_pct = quantile(errors, 0.9);
  return summary;
}

}  // namespace simulator
