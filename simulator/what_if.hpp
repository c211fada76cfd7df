// A deployment with one thing changed: other hardware, and how the time of a token answers to each parameter.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/deployment.hpp"
#include "simulator/table.hpp"

namespace simulator {

// Each empty (as it is), "x1.4" (times as much), or a number with the unit that the flag's help names.
struct HardwareChanges {
  std::string memory_rate = {};               // GB/s
  std::string nvlink = {};                    // GB/s of one direction
  std::string nic = {};                       // GB/s of a GPU, or with a G behind it Gb/s: 800G
  std::string peak = {};                      // dense FP8 TFLOPS; BF16 changes alike
  std::optional<int64_t> nvlink_domain = {};  // GPUs that NVLink, or a fabric as fast, reaches
  int64_t comm_sms = 0;                       // SMs that communication keeps from computing ...
  int64_t sms = 132;                          // ... of so many
};

// Throws InputError naming the flag.
Hardware changed(const Hardware& hardware, const HardwareChanges& changes);

// "sensitivity": for each parameter of hardware, engine and workload the slope of the mean time per token, from 5 % more and 5 % less.
Table sensitivity_table(const Deployment& deployment, const std::vector<ChosenFit>& fits, MoeCurves& curves);

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
