// Mean and standard deviation of the largest of several independent normal variables.
#pragma once

#include <vector>

namespace simulator {

struct Normal {
  double mean = 0;
  double stddev = 0;
};

// By integrating the product of the distribution functions. CHECKs that there is one.
Normal max_of_normals(const std::vector<Normal>& variables);

}  // namespace simulator
