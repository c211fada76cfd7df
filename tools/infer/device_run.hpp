// Generation on a device's engine in place of the reference, for the same requests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpu/engine/scheduler.hpp"
#include "model/weight_source.hpp"
#include "reference/generate/generator.hpp"
#include "tools/infer/device_trace.hpp"
#include "tools/infer/flags.hpp"

namespace tools {

struct DeviceResult {
  std::vector<reference::FinishReason> reasons;
  reference::GenerationStats stats;
};

// Throws InputError for options that the engine does not have, before anything is loaded.
void check_device_flags(const InferFlags& flags);

// Whether the run is of profile fp16, whose kernels compute in FP16.
bool is_fp16(const InferFlags& flags);

std::vector<gpu::Request> device_requests(const std::vector<reference::Request>& requests);
// Of one rank, for these requests: as large as the longest of them and --max-batch ask for.
gpu::EngineOptions engine_options(const InferFlags& flags,
                                  const model::ModelConfig& config,
                                  const std::vector<reference::Request>& requests,
                                  const gpu::SchedulerOptions& scheduling);
gpu::SchedulerOptions scheduling_of(const InferFlags& flags);
reference::GeneratedToken token_of(const gpu::NewToken& token, int64_t num_logprobs);
// Who watches the steps of a scheduler whose requests have these `numbers` among all. Both watchers may be null; empty if both are.
// `share`: which of a step's rows the probe is shown routing of; all if it is empty.
using ShareOfRows = std::function<gpu::Shard::Share(int64_t num_rows)>;
gpu::Scheduler::OnStep device_watch(std::vector<size_t> numbers,
                                    reference::StepProbe* probe,
                                    DeviceTrace* trace,
                                    ShareOfRows share = {});
DeviceResult result_of(const gpu::SchedulerStats& stats, const std::vector<gpu::FinishReason>& reasons);

// `probe` and `trace` may be null.
DeviceResult run_on_device(const InferFlags& flags,
                           const model::WeightSource& weights,
                           const std::vector<reference::Request>& requests,
                           const reference::Generator::OnToken& on_token,
                           reference::StepProbe* probe,
                           DeviceTrace* trace);

}  // namespace tools
