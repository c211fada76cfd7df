// A tensor that is known up to an error: what an op should give before its last rounding, and how far a legal implementation
// may lie from it. The currency between whoever recomputes an op and whoever compares.
#pragma once

#include <vector>

#include "model/dtype.hpp"
#include "model/tensor_view.hpp"

namespace model {

struct Estimate {
  Shape shape;
  std::vector<double> value;
  std::vector<double> error;  // >= 0; all zero for a tensor that is given
  DType dtype = DType::kF32;  // format the result is rounded to when it is stored
};

}  // namespace model
