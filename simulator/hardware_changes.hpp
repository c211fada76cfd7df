// What a what-if asks of the hardware: other rates and peaks, a larger NVLink domain, SMs for communication, wider accumulators.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/calibration.hpp"
#include "simulator/hardware.hpp"

namespace simulator {

// Each empty (as it is), "x1.4" (times as much), or a number with the unit that the flag's help names.
struct HardwareChanges {
  std::string memory_rate = {};               // GB/s
  std::string nvlink = {};                    // GB/s of one direction
  std::string nic = {};                       // GB/s of a GPU, or with a G behind it Gb/s: 800G
  std::string peak = {};                      // dense FP8 TFLOPS; BF16 changes alike
  std::optional<int64_t> nvlink_domain = {};  // GPUs that NVLink, or a fabric as fast, reaches
  std::optional<int64_t> comm_sms = {};       // SMs that communication keeps from computing (none) ...
  int64_t sms = 132;                          // ... of so many
  bool wide_fp8_accumulation = false;         // tensor cores add FP8 products in 34 bits, as the V3 report asks
};

// Throws InputError naming the flag.
Hardware changed(const Hardware& hardware, const HardwareChanges& changes);

// Constants with wide_fp8_accumulation. No public table tells the cost of promoting partial sums apart, so this is a bound on what it
// saves: FP8 products reach the share of their peak that BF16 ones, which nothing promotes, reach on the same GPU. Only Hopper promotes
// (about 14 bits kept; DeepSeek-V3 report 3.3.2 and 3.5.2). The other changes are in the hardware. Throws InputError for rows of tables.
std::vector<ChosenFit> changed(std::vector<ChosenFit> fits, const Hardware& hardware, const HardwareChanges& changes);

}  // namespace simulator
