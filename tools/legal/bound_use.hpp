// How much of its bound each kind of op needs: evidence that no bound is loose.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tools/trials.hpp"

namespace tools::legal {

struct BoundUse {
  double largest = 0;  // |legal value before its last rounding - estimate| / bound; above 1 the bound would be wrong
  int64_t num_elements = 0;  // with a bound above 0
  int64_t num_exact = 0;     // with a bound of 0: nothing is free
};

// By kind of op and form ("linear, FP8 blocks"), over the places of legal_runs.hpp, each op of them computed in `num_orders` drawn
// orders. A bound's width is that for a file of a million elements.
std::map<std::string, BoundUse> bound_uses(Trials& trials, int64_t num_orders);

}  // namespace tools::legal
