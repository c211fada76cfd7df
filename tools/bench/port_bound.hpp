// What the inner loop of a linear asks of the ports of a core, counted by hand, and how much of the multiply-add peak that leaves.
#pragma once

#include <optional>

#include "reference/rules.hpp"
#include "reference/simd/level.hpp"

namespace tools {

// Of `num_products` products of the inner loop, many rows of x, weights decoded already. Operations and loads are whole vectors of the
// level; a fused multiply-add is one operation, a product and its addition are two.
struct PortCount {
  double num_products = 0;
  double num_operations = 0;
  double num_loads = 0;
};

// Empty where a linear takes the definition of its steps, which nobody counted.
std::optional<PortCount> port_count(const reference::Rules& rules, bool is_fp8, reference::simd::Level level);

// What a core does in a second: multiply-adds on registers alone, and loads of whole vectors from the first cache.
struct CoreRates {
  double gmac_per_s = 0;
  double gload_per_s = 0;
};

// The share of the multiply-add loop that the count allows a core of these rates, whichever of the two it is that binds.
double port_bound_frac(const PortCount& count, const CoreRates& core, reference::simd::Level level);

}  // namespace tools
