#include "simulator/network_all_reduce.hpp"

#include <algorithm>
#include <cmath>

namespace simulator {
namespace {

// NCCL's own model of a tree (src/graph/tuning.cc@01afd20): 2 x 8.5 us over the network for each doubling of the nodes with the LL128
// protocol, and 110 / 3.8 / 2 = 14.5 GB/s of payload with LL. Two nodes take 30 us in all: 24 us of pplx-kernels' NCCL baseline (one
// all-to-all of 8; README of the measurements, section 10) on top of a kernel, so 13 us do not grow. A ring has 80 us and 85 % of the NICs.
constexpr double kDoublingUs = 17;
constexpr double kBaseUs = 13;
constexpr double kFixedUs = kBaseUs + kDoublingUs;
constexpr double kLowLatencyBytesPerUs = 14.5e3;
constexpr double kRingUs = 80;
constexpr double kRingFrac = 0.85;

}  // namespace

double network_all_reduce_us(double message_bytes, const NetworkGroup& group, const Peaks& peaks) {
  if (group.num_ranks <= group.ranks_per_domain) {
    return 0;
  }
  const auto inside = static_cast<double>(group.ranks_per_domain);
  const double domains = std::ceil(static_cast<double>(group.num_ranks) / inside);
  const double ring = 2 * (domains - 1) / domains * message_bytes / (peaks.network * inside * kRingFrac);
  return kBaseUs + kDoublingUs * std::log2(domains) +
         std::min(message_bytes / kLowLatencyBytesPerUs, kRingUs - kFixedUs + ring);
}

double network_send_us(double message_bytes, const Peaks& peaks) {
  return kFixedUs + message_bytes / peaks.network;
}

}  // namespace simulator
