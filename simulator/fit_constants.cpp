#include "simulator/fit_constants.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/check.hpp"

namespace simulator {
namespace {

using Point = std::vector<double>;

// from + factor * (to - from)
Point along(const Point& from, const Point& to, double factor) {
  Point point(from.size());
  for (size_t i = 0; i < point.size(); ++i) {
    point[i] = from[i] + factor * (to[i] - from[i]);
  }
  return point;
}

struct Vertex {
  Point point;
  double loss = 0;
};

}  // namespace

// Nelder and Mead 1965 with the usual coefficients: reflect 1, expand 2, contract and shrink 1/2.
std::vector<double> minimise_positive(const std::function<double(std::span<const double>)>& loss,
                                      std::span<const double> start,
                                      int max_steps) {
  constexpr double kFirstStep = 0.4;
  constexpr double kTolerance = 1e-10;
  const auto evaluate = [&](Point logs) {
    Point values(logs.size());
    std::ranges::transform(logs, values.begin(), [](double log) { return std::exp(log); });
    const double value = loss(values);
    return Vertex{std::move(logs), value};
  };
  Point origin(start.size());
  std::ranges::transform(start, origin.begin(), [](double value) { return std::log(value); });
  std::vector<Vertex> simplex{evaluate(origin)};
  for (size_t i = 0; i < origin.size(); ++i) {
    Point point = origin;
    point[i] += kFirstStep;
    simplex.push_back(evaluate(point));
  }
  const auto by_loss = [](const Vertex& left, const Vertex& right) { return left.loss < right.loss; };
  for (int step = 0; step < max_steps; ++step) {
    std::ranges::stable_sort(simplex, by_loss);
    if (simplex.back().loss - simplex.front().loss < kTolerance) {
      break;
    }
    Vertex& worst = simplex.back();
    Point centre(origin.size(), 0.0);
    for (size_t v = 0; v + 1 < simplex.size(); ++v) {
      for (size_t i = 0; i < centre.size(); ++i) {
        centre[i] += simplex[v].point[i] / static_cast<double>(origin.size());
      }
    }
    Vertex reflected = evaluate(along(centre, worst.point, -1));
    if (reflected.loss < simplex.front().loss) {
      Vertex expanded = evaluate(along(centre, worst.point, -2));
      worst = expanded.loss < reflected.loss ? std::move(expanded) : std::move(reflected);
    } else if (reflected.loss < simplex[simplex.size() - 2].loss) {
      worst = std::move(reflected);
    } else if (Vertex contracted = evaluate(along(centre, worst.point, 0.5)); contracted.loss < worst.loss) {
      worst = std::move(contracted);
    } else {
      for (size_t v = 1; v < simplex.size(); ++v) {
        simplex[v] = evaluate(along(simplex.front().point, simplex[v].point, 0.5));
      }
    }
  }
  Point best = std::ranges::min_element(simplex, by_loss)->point;
  std::ranges::transform(best, best.begin(), [](double log) { return std::exp(log); });
  return best;
}

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
