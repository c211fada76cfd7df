// Bytes that a layer's collectives move, counted from sizes alone; routing uniform where it matters.
#pragma once

#include <cstdint>

#include "simulator/routing.hpp"

namespace simulator {

// One token's hidden state on its way to one expert and back: FP8 out, BF16 back.
struct CopyBytes {
  int64_t dispatch = 0;         // payload
  int64_t dispatch_scales = 0;  // one FP32 scale for 128 values
  int64_t combine = 0;
};

CopyBytes copy_bytes(int64_t hidden_size);

// What each GPU sends in a ring all-reduce of `payload` bytes over `num_ranks`: 2 (n - 1) chunks of ceil(payload / n).
int64_t ring_allreduce_bytes(int64_t payload, int64_t num_ranks);

// How the copies of one token spread over an expert-parallel group whose ranks are all equally likely to own the token.
struct CopySpread {
  int64_t ep = 1;
  int64_t num_nodes = 1;
  double off_rank_frac = 0;      // of copies that leave the token's GPU
  double off_node_frac = 0;      // of copies that leave its node
  double nodes_reached = 0;      // expected number of nodes that hold a chosen expert, its own included
  int64_t most_nodes = 1;        // no token reaches more
  double per_copy_off_node = 0;  // copies that cross nodes, one for each chosen expert elsewhere (low-latency kernels)
  double per_node_off_node = 0;  // copies that cross nodes, one for each other node reached (deduplicated)
  double per_copy_in_node = 0;   // copies to another GPU of the token's node
};

CopySpread copy_spread(const Router& router, int64_t ep, int64_t gpus_per_node);

}  // namespace simulator
