// Generation on the ranks of a layout, each with an engine of its own.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "model/parallel_plan.hpp"
#include "model/weight_source.hpp"
#include "tools/infer/device_run.hpp"
#include "tools/infer/routing_trace.hpp"

namespace tools {

// True where the options ask for several ranks, or for a rank of an MPI job. Throws InputError for a layout that does not fit the model.
bool has_ranks(const InferFlags& flags, const model::ModelConfig& config);

// What to watch; null where nobody asked. On the first rank's process they get what all ranks saw.
struct RankTraces {
  RoutingTrace* routing = nullptr;
  DeviceTrace* times = nullptr;
};

// Data-parallel rank d of n has requests d, d + n, ...; every rank decides by itself when one of its own ends, and all that share it
// decide alike. `listen` gives each rank its own judge of that. `on_token` hears of all tokens, on the first rank: as they come where
// that one has them, at the end where not. Empty on a rank that is another process than the first: that one tells.
// Throws what the rank that failed first threw; of each that failed one line goes to stderr. With MPI, a job in which a rank fails is
// ended.
std::optional<DeviceResult> run_on_ranks(const InferFlags& flags,
                                         const model::WeightSource& weights,
                                         const std::vector<reference::Request>& requests,
                                         const RankTraces& traces,
                                         const std::function<reference::Generator::OnToken()>& listen,
                                         const reference::Generator::OnToken& on_token);

}  // namespace tools
