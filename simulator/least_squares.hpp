// Weighted linear least squares for a handful of unknowns.
#pragma once

#include <vector>

namespace simulator {

// Minimises sum over rows of ((sum_j basis[i][j] x_j - target_i) / target_i)^2, the relative error. Unknowns that no row depends on
// come out as 0. Targets are not 0; CHECKs the sizes.
std::vector<double> fit_relative(const std::vector<std::vector<double>>& basis, const std::vector<double>& targets);

}  // namespace simulator
