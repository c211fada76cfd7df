// The emulated device with one kernel replaced by its mutant (tools/CMakeLists.txt says which line differs). Included by one file
// compiled plain and by one compiled for checking.
#pragma once

#include <string>
#include <utility>

#include "gpu/engine/emulation_backend.hpp"
#include "mutants/combine_barrier.cuh"
#include "mutants/rms_norm_count.cuh"
#include "mutants/swiglu_sign.cuh"

namespace tools::DSV3_BACKEND {

namespace kernels = gpu::DSV3_BACKEND;

class FaultyBackend : public kernels::EmulationBackend {
 public:
  FaultyBackend(const gpu::emulation::Options& options, std::string fault)
      : EmulationBackend(options), fault_(std::move(fault)) {}

  using EmulationBackend::launch;
  void launch(const gpu::CombineArguments& arguments) override {
    fault_ == "k-combine-barrier" ? kernels::combine_barrier::combine(stream(), arguments)
                                  : kernels::combine(stream(), arguments);
  }
  void launch(const gpu::RmsNormArguments& arguments) override {
    fault_ == "k-rms-norm-count" ? kernels::rms_norm_count::rms_norm(stream(), arguments)
                                 : kernels::rms_norm(stream(), arguments);
  }
  void launch(const gpu::SwigluArguments& arguments) override {
    fault_ == "k-swiglu-sign" ? kernels::swiglu_sign::swiglu(stream(), arguments)
                              : kernels::swiglu(stream(), arguments);
  }

 private:
  std::string fault_;
};

}  // namespace tools::DSV3_BACKEND
