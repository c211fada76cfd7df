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

}  // namespace simulator
