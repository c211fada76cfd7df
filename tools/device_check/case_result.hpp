// What one launch of the device check gave, on whichever machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tools {

struct CaseResult {
  std::string name;
  // True: the arithmetic is defined to the bit, or it is the tensor core's and the emulation claims to have it. False: an elementary
  // function of the device is in it, and results may lie one step of their format apart.
  bool is_exact = true;
  int element_bytes = 2;  // 2: BF16, 4: FP32 or integers
  std::vector<std::byte> bytes;
};

// The emulation of a Hopper, and the first CUDA device. The second throws runtime_error with CUDA's words.
std::vector<CaseResult> run_cases_emulated();
std::vector<CaseResult> run_cases_on_device();
std::string device_name();

}  // namespace tools
