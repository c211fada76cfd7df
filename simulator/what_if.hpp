// A deployment with one thing changed: other hardware, and how the time of a token answers to each parameter.
#pragma once

#include <string>
#include <vector>

#include "simulator/deployment.hpp"
#include "simulator/hardware_changes.hpp"
#include "simulator/table.hpp"

namespace simulator {

// "sensitivity": for each parameter of hardware, engine and workload the slope of the mean time per token, from 5 % more and 5 % less.
Table sensitivity_table(const Deployment& deployment, const std::vector<ChosenFit>& fits, MoeCurves& curves);

// What what_if_table() starts from: the deployment on the hardware as it is built, and what the user changed already.
struct WhatIfBase {
  Deployment as_built;
  std::vector<ChosenFit> fits;  // of that hardware
  HardwareChanges changes = {};
};

// "what_ifs": the deployment with one thing changed at a time: rates, a unified domain, wider FP8 accumulation, SMs of communication, and
// what is a choice of the deployment (overlap, EPLB, cache type, equal experts). A change that cannot be is left out.
Table what_if_table(const WhatIfBase& base, MoeCurves& curves);

// "mtp": for each depth up to that of the workload what a step takes and yields, and the acceptance of its last draft above which the
// depth pays.
Table mtp_table(const Deployment& deployment, const std::vector<ChosenFit>& fits, MoeCurves& curves);

struct Compared {
  std::string name;
  Deployment deployment;
  Serving serving;
};

// "results": figures of both with the ratio. "parts": time of a decode step by part, largest difference first; parts alike are left out.
std::vector<Table> comparison_tables(const Compared& a, const Compared& b);

}  // namespace simulator
