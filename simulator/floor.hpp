// The hardware floor of each step of a walk: no implementation can be faster. It says nothing about how fast one is.
#pragma once

#include <string_view>
#include <vector>

#include "simulator/hardware.hpp"
#include "simulator/walk.hpp"

namespace simulator {

enum class Bound { kNone, kMemory, kCompute, kNvlink, kNetwork };

// "", "memory", "compute", "nvlink", "network".
std::string_view bound_name(Bound bound);

struct Floor {
  double time_us = 0;
  Bound bound = Bound::kNone;
};

// One for each step. An op takes at least max(bytes / memory rate, FLOPs / peak); bytes are weights read and cache, since what lies
// between two ops may stay on the chip. Scores and values are one kernel, which passes over the cache once: what follows probs adds
// only what the two together need beyond the floor of probs. A collective takes at least what the fuller of NVLink and network needs, with each token crossing to another domain once.
// Ranks are placed in order, rank r in NVLink domain floor(r / domain size).
std::vector<Floor> walk_floors(const Walk& walk, const model::ModelConfig& config, const Hardware& hardware);

}  // namespace simulator
