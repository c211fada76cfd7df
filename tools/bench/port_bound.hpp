// What the inner loop of a linear asks of the ports of a core, counted by hand, and how much of the multiply-add peak that leaves.
#pragma once

#include <cstdint>
#include <optional>

#include "reference/rules.hpp"
#include "reference/simd/level.hpp"

namespace tools {

// Of `num_products` products of the inner loop. Many rows of x: the weights are decoded already. Few of them: decoding is counted too.
// Operations and loads are whole vectors of the level; a fused multiply-add is one operation, a product and its addition are two.
struct PortCount {
  double num_products = 0;
  double num_operations = 0;         // on the ports that multiply
  double num_loads = 0;              // from the first cache
  double num_vector_operations = 0;  // on any port for vectors, those above among them; 0: not counted
  double num_weight_bytes = 0;       // read from memory; 0: read once for many rows
};

// Empty where a linear takes the definition of its steps, or a level decodes in a way, that nobody counted.
std::optional<PortCount> port_count(const reference::Rules& rules,
                                    bool is_fp8,
                                    int64_t num_tokens,
                                    reference::simd::Level level);

// What a core does in a second, or several together: multiply-adds on registers alone, loads of whole vectors from the first cache, other
// operations on vectors, bytes from memory.
struct CoreRates {
  double gmac_per_s = 0;
  double gload_per_s = 0;
  double goperation_per_s = 0;
  double read_gb_per_s = 0;
};

// The share of the multiply-add loop that the count allows a core of these rates, whichever of them it is that binds.
double port_bound_frac(const PortCount& count, const CoreRates& core, reference::simd::Level level);

}  // namespace tools
