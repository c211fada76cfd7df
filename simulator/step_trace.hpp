// One decode step as a timeline: what chosen ranks do when, op by op, on the lanes SM, NVLink, network and host.
#pragma once

#include <cstdint>
#include <vector>

#include "model/chrome_trace.hpp"
#include "simulator/serving.hpp"

namespace simulator {

// One process a rank of the EP (or TP) group. Routing is sampled once, with a popularity for every layer; each rank's dispatch, experts and
// combine are its own, and it waits for the slowest before and after combine. Kernels are drawn as long as they take in the stream.
// With two-batch overlap the halves take turns: an op starts when its half and its lane are free. Throws InputError for a rank that
// is not there.
model::ChromeTrace step_trace(const Deployment& deployment,
                              const std::vector<ChosenFit>& fits,
                              MoeCurves& curves,
                              const Serving& serving,
                              const std::vector<int64_t>& ranks);

}  // namespace simulator
