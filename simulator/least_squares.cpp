#include "simulator/least_squares.hpp"

#include <cmath>
#include <utility>

#include "model/check.hpp"

namespace simulator {

std::vector<double> fit_relative(const std::vector<std::vector<double>>& basis, const std::vector<double>& targets) {
  CHECK(!basis.empty() && basis.size() == targets.size());
  const size_t num_unknowns = basis.front().size();
  // Normal equations, one column more for the right-hand side.
  std::vector<std::vector<double>> rows(num_unknowns, std::vector<double>(num_unknowns + 1, 0.0));
  for (size_t i = 0; i < basis.size(); ++i) {
    CHECK(basis[i].size() == num_unknowns && targets[i] != 0);
    const double weight = 1 / (targets[i] * targets[i]);
    for (size_t j = 0; j < num_unknowns; ++j) {
      for (size_t k = 0; k < num_unknowns; ++k) {
        rows[j][k] += weight * basis[i][j] * basis[i][k];
      }
      rows[j][num_unknowns] += weight * basis[i][j] * targets[i];
    }
  }
  for (size_t j = 0; j < num_unknowns; ++j) {
    if (rows[j][j] == 0) {
      rows[j][j] = 1;  // nothing depends on it
    }
  }
  for (size_t pivot = 0; pivot < num_unknowns; ++pivot) {
    size_t best = pivot;
    for (size_t row = pivot + 1; row < num_unknowns; ++row) {
      best = std::abs(rows[row][pivot]) > std::abs(rows[best][pivot]) ? row : best;
    }
    std::swap(rows[pivot], rows[best]);
    CHECK(rows[pivot][pivot] != 0);
    for (size_t row = 0; row < num_unknowns; ++row) {
      if (row != pivot) {
        const double factor = rows[row][pivot] / rows[pivot][pivot];
        for (size_t k = pivot; k <= num_unknowns; ++k) {
          rows[row][k] -= factor * rows[pivot][k];
        }
      }
    }
  }
  std::vector<double> solution(num_unknowns);
  for (size_t j = 0; j < num_unknowns; ++j) {
    solution[j] = rows[j][num_unknowns] / rows[j][j];
  }
  return solution;
}

}  // namespace simulator
