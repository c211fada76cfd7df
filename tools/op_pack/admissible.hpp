// The sets that a legal choice of experts lies between.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.hpp"
#include "model/estimate.hpp"
#include "reference/rules.hpp"

namespace tools::op_pack {

// Per token and expert, 0 or 1. [tokens, experts]
struct Masks {
  std::vector<uint8_t> may;   // some legal choice has it
  std::vector<uint8_t> must;  // every legal choice has it
};

// By the margins of reference/bounds/routing.hpp, over every set of groups that the scores allow to be kept. bias may be empty.
Masks admissible_sets(const model::ModelConfig& config,
                      const reference::Rules& rules,
                      const model::Estimate& scores,
                      std::span<const float> bias);

}  // namespace tools::op_pack
