#include "simulator/network_all_reduce.hpp"

#include <algorithm>
#include <cmath>

namespace simulator {
namespace {

// 30 us is three InfiniBand hops of pplx-kernels' NCCL baseline (24 us, one all-to-all of 8; README of the measurements, section 10)
// on top of a kernel; 15 GB/s what the low-latency protocol moves, 80 us and 85 % of the NICs a ring.
constexpr double kFixedUs = 30;
constexpr double kLowLatencyBytesPerUs = 15e3;
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
  return kFixedUs * std::log2(domains) + std::min(message_bytes / kLowLatencyBytesPerUs, kRingUs - kFixedUs + ring);
}

double network_send_us(double message_bytes, const Peaks& peaks) {
  return kFixedUs + message_bytes / peaks.network;
}

}  // namespace simulator
