// Faults planted in kernels of the emulated device, to show that verification finds and names them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu/engine/backend.hpp"

namespace tools {

struct KernelFault {
  std::string id;
  std::string kernel;
  std::string description;
};

const std::vector<KernelFault>& kernel_faults();

// An emulated device, checked or not, one of whose kernels has the fault. Throws InputError for an unknown one, listing those known.
std::unique_ptr<gpu::Backend> make_faulty_backend(const gpu::emulation::Options& options,
                                                  bool checked,
                                                  const std::string& fault);

}  // namespace tools
