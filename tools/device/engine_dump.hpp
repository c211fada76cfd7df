// Runs the engine on the cases of a golden file and keeps what its kernels computed, as a dump to be judged.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "golden/formats.hpp"
#include "golden/ranks.hpp"
#include "golden/store.hpp"
#include "gpu/engine/engine.hpp"
#include "model/parallel_plan.hpp"
#include "model/weight_source.hpp"
#include "tools/device/open.hpp"

namespace tools {

struct EngineDumpJob {
  std::vector<std::string> cases = {};  // empty: all; those they follow run as well
  bool fp8_cache = false;
  model::ParallelLayout layout = {};
  model::ExpertSlots expert_of_slot = {};  // as gpu::EngineOptions has it
  // Each rank's engine when it has run all cases, on the rank's thread.
  std::function<void(const gpu::Engine& engine)> on_done = {};
  // What each rank of a layout is given in place of its communicator: where a test plants a fault.
  std::function<std::unique_ptr<gpu::comm::Communicator>(gpu::comm::Communicator& world)> wrap = {};
  // Likewise for the options of its engine.
  std::function<void(int rank, gpu::EngineOptions& options)> change = {};
  std::function<void(const std::string& line)> on_progress = {};
  std::function<void(const std::string& text)> on_plan = {};  // the memory plan, before anything is allocated
};

// Throws InputError when the golden file follows another profile than the engine has, with the command that records one that does not.
void check_profile(const golden::Manifest& manifest);

// `weights`: as the manifest's linears read them, dequantised unless those are FP8 (gpu::DequantisedSource).
// Throws InputError when the engine cannot run the model, emulation::Fault when a kernel faults.
golden::Dump dump_engine(const model::WeightSource& weights,
                         const golden::Manifest& manifest,
                         std::unique_ptr<gpu::Backend> backend,
                         const EngineDumpJob& job);

// The same on the ranks of job.layout, each on a thread with a device of its own, put together. The devices are peers: kernels take tokens
// to their experts. The sequences of a case are shared out over the data-parallel ranks. Throws what the first rank that failed threw.
using OpenRank = std::function<RankDevice(gpu::comm::Communicator& world, const Peers& peers)>;
golden::GatheredDump dump_ranks(const model::WeightSource& weights,
                                const golden::Manifest& manifest,
                                const OpenRank& open_rank,
                                const EngineDumpJob& job);

}  // namespace tools
