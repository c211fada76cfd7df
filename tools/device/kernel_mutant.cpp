// One mutant: compiled once for each, with DSV3_BACKEND its name (cmake/mutant.cmake).
#include "tools/device/kernel_mutant.hpp"

#include DSV3_MUTANT_HEADER

namespace tools::mutants {

extern const KernelLauncher DSV3_BACKEND;
const KernelLauncher DSV3_BACKEND = &gpu::DSV3_BACKEND::DSV3_MUTANT_LAUNCHER;

}  // namespace tools::mutants
