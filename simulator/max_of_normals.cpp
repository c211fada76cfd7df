#include "simulator/max_of_normals.hpp"

#include <algorithm>
#include <cmath>

#include "model/check.hpp"

namespace simulator {

Normal max_of_normals(const std::vector<Normal>& variables) {
  CHECK(!variables.empty());
  constexpr double kReach = 6;  // standard deviations
  constexpr int kNumPoints = 400;
  double floor = variables.front().mean;  // the largest mean is a lower bound of where the mass lies
  double top = floor;
  double widest = 0;
  for (const Normal& variable : variables) {
    floor = std::max(floor, variable.mean - kReach * variable.stddev);
    top = std::max(top, variable.mean + kReach * variable.stddev);
    widest = std::max(widest, variable.stddev);
  }
  for (const Normal& variable : variables) {
    // Below its least value the maximum cannot fall.
    floor = variable.stddev == 0 ? std::max(floor, variable.mean) : floor;
  }
  if (widest == 0) {
    return {.mean = floor, .stddev = 0};
  }
  // E[max] = low + integral of (1 - F), E[max^2] alike; F jumps at `low` where a constant or a tail is cut off.
  double low = top;
  for (const Normal& variable : variables) {
    low = std::min(low, variable.mean - kReach * variable.stddev);
  }
  low = std::max(low, floor);
  const double width = (top - low) / kNumPoints;
  double first = 0;
  double second = 0;
  for (int i = 0; i < kNumPoints; ++i) {
    const double x = low + (i + 0.5) * width;
    double below = 1;
    for (const Normal& variable : variables) {
      if (variable.stddev > 0) {
        below *= 0.5 * std::erfc(-(x - variable.mean) / (variable.stddev * std::sqrt(2.0)));
      } else if (x < variable.mean) {
        below = 0;
      }
      if (below < 1e-12) {
        break;
      }
    }
    first += (1 - below) * width;
    second += 2 * (x - low) * (1 - below) * width;
  }
  return {.mean = low + first, .stddev = std::sqrt(std::max(0.0, second - first * first))};
}

}  // namespace simulator
