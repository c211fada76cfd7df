// The predicted time of a step, known by modules, shared out over the ops and collectives that walk() lists.
#pragma once

#include <span>
#include <vector>

#include "simulator/floor.hpp"
#include "simulator/step_cost.hpp"
#include "simulator/walk.hpp"

namespace simulator {

struct StepShares {
  struct Rest {
    StepPart part = StepPart::kHost;
    double time_us = 0;
  };
  std::vector<double> time_us;   // of each step of the walk; what overlap hides of an exchange is left out
  std::vector<bool> is_covered;  // some part has it: its time may be 0, hidden behind others
  std::vector<Rest> rest;        // what belongs to no op: waiting, drafting, the engine
};

// `cost` of StepModel::decode() or prefill(), `floors` of walk_floors(). The time of a module goes to its ops in proportion to their
// floors, its fixed time evenly; shares and rest add up to the cost's total. Ops of MTP layers get nothing: drafting has their time.
StepShares share_out(const model::ModelConfig& config,
                     const Walk& walk,
                     std::span<const Floor> floors,
                     const StepCost& cost);

}  // namespace simulator
