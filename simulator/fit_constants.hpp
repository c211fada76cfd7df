// Finds positive constants of a formula from measurements: least mean |log(predicted / measured)|, which no single odd row can pull.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace simulator {

// The minimum of `loss` over positive arguments, near `start`, by the downhill simplex in logarithms. Deterministic.
std::vector<double> minimise_positive(const std::function<double(std::span<const double>)>& loss,
                                      std::span<const double> start,
                                      int max_steps = 4000);

// The q-quantile, q from 0 to 1, linear between order statistics. `values` may not be empty.
double quantile(std::vector<double> values, double q);

}  // namespace simulator
