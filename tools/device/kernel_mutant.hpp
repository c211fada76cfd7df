// Kernels of which one line is changed, to show that verification finds and names them: one entry of their table, which is written when
// CMake configures (cmake/mutant.cmake).
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "gpu/emulation/device.hpp"
#include "gpu/engine/backend.hpp"

namespace tools {

// A launcher of gpu/kernels.
template <typename Arguments>
using LauncherOf = void (*)(gpu::emulation::Stream, const Arguments&);
using KernelLauncher = std::variant<LauncherOf<gpu::AlignArguments>,
                                    LauncherOf<gpu::Bf16LinearArguments>,
                                    LauncherOf<gpu::CacheLatentArguments>,
                                    LauncherOf<gpu::CombineArguments>,
                                    LauncherOf<gpu::EmbedArguments>,
                                    LauncherOf<gpu::ExpandedAttentionArguments>,
                                    LauncherOf<gpu::Fp8LinearArguments>,
                                    LauncherOf<gpu::Fp8LinearSm90Arguments>,
                                    LauncherOf<gpu::GatherLatentArguments>,
                                    LauncherOf<gpu::LatentAttentionArguments>,
                                    LauncherOf<gpu::PackRowsArguments>,
                                    LauncherOf<gpu::QuantizeRowsArguments>,
                                    LauncherOf<gpu::RmsNormArguments>,
                                    LauncherOf<gpu::RotateQueryArguments>,
                                    LauncherOf<gpu::RouterArguments>,
                                    LauncherOf<gpu::SwigluArguments>>;

struct KernelMutant {
  std::string id;
  std::string kernel;
  std::string file;    // of gpu/kernels: the one that is changed
  std::string breaks;  // what is wrong with it
  std::string
      op;  // CASE/OP that diverges first; empty: a mutant that differs in nothing, or one that a fault of the device names
  std::string cases;  // what shows it, as the tests name their golden files
  bool is_race;       // compiled for checking: the emulation reports an access that nothing orders
  KernelLauncher launcher;
};

// Those that dsv3-verify --kernel-fault offers.
const std::vector<KernelMutant>& kernel_faults();

}  // namespace tools
