// Faults planted in kernels of the emulated device, to show that verification finds and names them.
#pragma once

#include <memory>
#include <string>

#include "gpu/engine/backend.hpp"
#include "tools/device/kernel_mutant.hpp"

namespace tools {

// The mutant of kernel_faults() that has this id. Throws InputError for an unknown one, listing those known.
const KernelMutant& kernel_fault(const std::string& id);

// An emulated device, checked or not, one of whose kernels is the mutant's.
std::unique_ptr<gpu::Backend> make_faulty_backend(const gpu::emulation::Options& options,
                                                  bool checked,
                                                  const KernelMutant& mutant);

}  // namespace tools
