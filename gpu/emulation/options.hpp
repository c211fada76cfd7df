// How an emulated device behaves: everything that real hardware leaves open or that costs time.
#pragma once

#include <cstdint>
#include <memory>

#include "gpu/emulation/tensor_core.hpp"

namespace gpu::emulation {

class PeerGroup;

// The order in which threads of a block, and operations of different streams, get to run when several could.
enum class OrderKind { kForward, kReverse, kRandom };

struct Order {
  OrderKind kind = OrderKind::kForward;
  uint64_t seed = 0;  // of kRandom
};

struct Options {
  Order order = {};
  int num_os_threads = 1;  // blocks of a launch are shared out; kernels compiled for checking use one
  int64_t memory_bytes = int64_t{8} << 30;
  Accumulation accumulation = Accumulation::kFp32;
  bool finds_races = true;  // of kernels compiled for checking; without it their accesses are counted and no more
  std::shared_ptr<PeerGroup> peers = nullptr;  // the devices whose kernels this one shares memory with
  double peer_timeout_s = 60;                  // after which a kernel that waits for a peer's flag is a deadlock
};

}  // namespace gpu::emulation
