#include "tools/device/kernel_faults.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "model/check.hpp"
#include "tools/device/faulty_backend.hpp"

namespace tools {

std::unique_ptr<gpu::Backend> make_checked_faulty_backend(const gpu::emulation::Options& options,
                                                          const std::string& fault);  // kernel_faults_checked.cpp

const std::vector<KernelFault>& kernel_faults() {
  static const std::vector<KernelFault> faults{
      {"k-combine-barrier", "combine", "no barrier between those who sort a token's experts and those who read them"},
      {"k-rms-norm-count", "rms_norm", "the mean of one element too few"},
      {"k-swiglu-sign", "swiglu", "the exponential of silu with the wrong sign"},
  };
  return faults;
}

std::unique_ptr<gpu::Backend> make_faulty_backend(const gpu::emulation::Options& options,
                                                  bool checked,
                                                  const std::string& fault) {
  if (std::ranges::count(kernel_faults(), fault, &KernelFault::id) == 0) {
    std::vector<std::string> known;
    for (const KernelFault& each : kernel_faults()) {
      known.push_back(each.id);
    }
    model::throw_input_error("--kernel-fault {}: expected one of {}", fault, fmt::join(known, ", "));
  }
  return checked ? make_checked_faulty_backend(options, fault)
                 : std::make_unique<emulated::FaultyBackend>(options, fault);
}

}  // namespace tools
