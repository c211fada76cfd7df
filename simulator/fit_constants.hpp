// Finds the constants of a formula from measurements. Any formula with positive constants: downhill, for a loss of one's own (least
// mean |log(predicted / measured)|, which no single odd row can pull). One that is linear in constants of either sign: by solving.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace simulator {

// The minimum of `loss` over positive arguments, near `start`, by the downhill simplex in logarithms. Deterministic.
std::vector<double> minimise_positive(const std::function<double(std::span<const double>)>& loss,
                                      std::span<const double> start,
                                      int max_steps = 4000);

// Minimises sum over rows of ((sum_j basis[i][j] x_j - target_i) / target_i)^2, the relative error. Unknowns that no row depends on
// come out as 0. Targets are not 0; CHECKs the sizes.
std::vector<double> fit_relative(const std::vector<std::vector<double>>& basis, const std::vector<double>& targets);

}  // namespace simulator
