// The bits of whole forward passes as one hash for each op: what no compiler, optimisation, level of instructions or number of threads
// may change.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "model/weight_source.hpp"
#include "reference/rules.hpp"
#include "reference/simd/level.hpp"

namespace determinism {

// Every mode whose bits are fixed, by name: profiles, exact, the recipes of tensor cores. (`fast` leaves the order of sums open.)
struct Mode {
  std::string name;
  reference::Rules rules;
};
inline std::ostream& operator<<(std::ostream& out, const Mode& mode) {
  return out << mode.name;
}
std::vector<Mode> modes_of(const model::ModelConfig& config);

// "mini" and generated fixtures that run in a moment.
struct SmallModel {
  std::string name;
  std::unique_ptr<model::WeightSource> weights;
};
std::vector<SmallModel> small_models();

// How a pass is computed.
struct Cell {
  reference::simd::Level level;
  int num_threads = 1;
};

// XXH3-64 of all values of each op, in order of execution: "layer.#.attn.q_a" -> hash. A prompt of seven tokens with expanded
// attention, then two steps with absorbed attention, all MTP layers included. Chooses the level for the whole process.
using Bits = std::map<std::string, uint64_t>;
Bits bits_of(const model::WeightSource& weights,
             const reference::Rules& rules,
             const Cell& cell,
             int32_t first_token = 3);

}  // namespace determinism
