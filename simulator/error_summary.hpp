// How far predictions are from measurements, in the figures that every `validate` prints.
#pragma once

#include <cstdint>
#include <vector>

namespace simulator {

struct Comparison {
  double predicted = 0;
  double low = 0;  // 90 % interval
  double high = 0;
  double measured = 0;

  [[nodiscard]] double error_pct() const { return 100 * (predicted / measured - 1); }
  [[nodiscard]] bool is_covered() const { return measured >= low && measured <= high; }
};

struct ErrorSummary {
  int64_t rows = 0;
  double median_abs_error_pct = 0;
  double p90_abs_error_pct = 0;
  double bias_pct = 0;  // mean signed error
  double coverage_90_pct = 0;
};

// All zero for no comparisons.
ErrorSummary summarise(const std::vector<Comparison>& comparisons);

// The value below which `fraction` of the sorted values lie, interpolated between neighbours. 0 for none.
double quantile(std::vector<double> values, double fraction);

}  // namespace simulator
