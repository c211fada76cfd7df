// Runs the engine on the cases of a golden file and keeps what its kernels computed, as a dump to be judged.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "golden/formats.hpp"
#include "golden/store.hpp"
#include "gpu/engine/engine.hpp"
#include "model/weight_source.hpp"

namespace tools {

struct EngineDumpJob {
  std::vector<std::string> cases = {};  // empty: all; those they follow run as well
  bool fp8_cache = false;
  std::function<void(const std::string& line)> on_progress = {};
  std::function<void(const std::string& text)> on_plan = {};  // the memory plan, before anything is allocated
};

// Throws InputError when the golden file follows another profile than the engine, with the command that records one that does not.
void check_profile(const golden::Manifest& manifest, const model::ModelConfig& config);

// Throws InputError when the engine cannot run the model, emulation::Fault when a kernel faults.
golden::Dump dump_engine(const model::WeightSource& weights,
                         const golden::Manifest& manifest,
                         std::unique_ptr<gpu::Backend> backend,
                         const EngineDumpJob& job);

}  // namespace tools
