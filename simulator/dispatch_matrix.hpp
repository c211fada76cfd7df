// The micro view of a dispatch: which rank sends how much to which, counted token by token.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/placement.hpp"
#include "simulator/routing_trace.hpp"

namespace simulator {

struct DispatchMatrix {
  int64_t num_ranks = 0;
  std::vector<std::vector<int64_t>>
      copies;  // [from][to], one for each expert that a token chose; the diagonal stays on the rank
  std::vector<std::vector<int64_t>> tokens;  // [from][to], a token with several experts on a rank counted once
  std::vector<int64_t> node_copies_sent;     // [from], one for each other node that a token reaches
};

// Tokens whose rank the trace does not name are shared out in blocks, the first ones to rank 0. A token uses the copy of an expert
// whose number among the expert's slots is the token's modulo their count. Throws InputError for a rank or an expert that is not there.
DispatchMatrix dispatch_matrix(const TraceLayer& layer, const Placement& placement, int64_t ranks_per_node);

}  // namespace simulator
