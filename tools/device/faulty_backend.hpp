// The emulated device with one kernel replaced by a mutant. Included by one file compiled plain and by one compiled for checking.
#pragma once

#include "gpu/engine/emulation_backend.hpp"
#include "tools/device/kernel_mutant.hpp"

namespace tools::DSV3_BACKEND {

class FaultyBackend : public gpu::DSV3_BACKEND::EmulationBackend {
 public:
  FaultyBackend(const gpu::emulation::Options& options, const KernelLauncher& mutant)
      : EmulationBackend(options), mutant_(mutant) {}

  using EmulationBackend::launch;
  void launch(const gpu::AlignArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::Bf16LinearArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::CacheLatentArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::CombineArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::EmbedArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::ExpandedAttentionArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::Fp8LinearArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::Fp8LinearSm90Arguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::GatherLatentArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::LatentAttentionArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::PackRowsArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::QuantizeRowsArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::RmsNormArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::RotateQueryArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::RouterArguments& arguments) override { launch_mutant_or_true(arguments); }
  void launch(const gpu::SwigluArguments& arguments) override { launch_mutant_or_true(arguments); }

 private:
  template <typename Arguments>
  void launch_mutant_or_true(const Arguments& arguments) {
    if (const auto* mutant = std::get_if<LauncherOf<Arguments>>(&mutant_)) {
      (*mutant)(stream(), arguments);
    } else {
      EmulationBackend::launch(arguments);
    }
  }

  KernelLauncher mutant_;
};

}  // namespace tools::DSV3_BACKEND
