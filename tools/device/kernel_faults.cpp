#include "tools/device/kernel_faults.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "model/check.hpp"
#include "tools/device/faulty_backend.hpp"

namespace tools {

std::unique_ptr<gpu::Backend> make_checked_faulty_backend(const gpu::emulation::Options& options,
                                                          const KernelLauncher& mutant);  // kernel_faults_checked.cpp

const KernelMutant& kernel_fault(const std::string& id) {
  const auto found = std::ranges::find(kernel_faults(), id, &KernelMutant::id);
  if (found == kernel_faults().end()) {
    std::vector<std::string> known;
    for (const KernelMutant& each : kernel_faults()) {
      known.push_back(each.id);
    }
    model::throw_input_error("--kernel-fault {}: expected one of {}", id, fmt::join(known, ", "));
  }
  return *found;
}

std::unique_ptr<gpu::Backend> make_faulty_backend(const gpu::emulation::Options& options,
                                                  bool checked,
                                                  const KernelMutant& mutant) {
  return checked ? make_checked_faulty_backend(options, mutant.launcher)
                 : std::make_unique<emulated::FaultyBackend>(options, mutant.launcher);
}

}  // namespace tools
