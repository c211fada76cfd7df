// What TP and PP cost over the network, between NVLink domains. From the constants of NCCL's
// tuning model and one measured baseline, not fitted: no public table has small messages there.
#pragma once

#include <cstdint>

#include "simulator/op_fit.hpp"

namespace simulator {

struct NetworkGroup {
  int64_t num_ranks = 1;
  int64_t ranks_per_domain = 1;
};

// The part of an all-reduce of `message_bytes` between domains, us; 0 inside one. The part inside comes on top.
double network_all_reduce_us(double message_bytes, const NetworkGroup& group, const Peaks& peaks);

// One message to a rank of another domain, us.
double network_send_us(double message_bytes, const Peaks& peaks);

}  // namespace simulator
