// Finds the step of an unknown unit from its vectors: every rule of a finite search that explains all rows, and what the rows leave open.
#pragma once

#include <string>
#include <vector>

#include "reference/tensor_core/vectors.hpp"

namespace reference::tensor_core {

struct Fit {
  std::vector<Path> paths;           // every rule that reproduces all rows, in order of L, F, P
  std::vector<std::string> unknown;  // what the rows cannot tell, one sentence each
};

// Searches L = 1, 2, 4, ... up to the longest row, F = 7 .. 40, P = 7 .. 23 and all roundings, for steps in ascending k with c as
// the first accumulator; for FP8 also the pairs of Chain::kUnpackedPairs. An FP16 result is always P = 10, to nearest even.
Fit fit_step(const VectorSet& set);

}  // namespace reference::tensor_core
