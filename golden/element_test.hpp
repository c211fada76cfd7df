// The test of one tensor against an estimate: every element inside the rounded interval, or not.
#pragma once

#include <cstdint>

#include "golden/recompute.hpp"
#include "model/estimate.hpp"
#include "model/tensor_view.hpp"

namespace golden {

struct TensorTest {
  bool holds = false;
  bool wider = false;  // the dump stores more digits than the rule does
  int64_t num_failed = 0;
  int64_t worst = -1;  // element with the largest bound use
  double max_bound_use = 0;
  double max_ulp = 0;
  double bias_z = 0;
  double got = 0;  // of the worst element
  double expected = 0;
  double bound = 0;
  std::string reason = {};  // why it does not hold, in words
};

// got passes iff RN(value - error) <= got <= RN(value + error) in the format it is stored in, for every element; NaN must meet
// NaN. A dump that stores the rule's numbers in a wider container is judged in the rule's format; one that never rounded to it is
// judged in its own and marked `wider`; a narrower container fails. num_sigmas: width of the estimate's statistical part.
TensorTest test_tensor(const Recompute& recompute,
                       const model::Estimate& estimate,
                       const model::TensorView& got,
                       double num_sigmas);

}  // namespace golden
