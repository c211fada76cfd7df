// Which accesses of which device are ordered before what somebody does now: whole launches by the clocks of their queues, and of the
// blocks of later launches what one thread published.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "gpu/emulation/shadow.hpp"

namespace gpu::emulation {

// What an operation of a queue has to wait for: for each stream, how many of its operations (vector clock).
using QueueClock = std::map<int, int64_t>;
void join(QueueClock& clock, const QueueClock& other);

// What a thread published of its block: its own accesses up to `own_time`, its warp's and its block's before the last meeting.
struct Release {
  uint32_t run = 0;
  int thread = 0;
  uint32_t own_time = 0;
  uint32_t warp_time = 0;
  uint32_t block_time = 0;
};
// Is the access, of the same block, among what was published?
bool covers(const Release& release, const ShadowAccess& access);

struct PeerFrontier {  // of one device
  struct Block {
    Release release;
    int stream = 0;  // of the block's launch, and its place there
    int64_t place = 0;
  };
  QueueClock finished;
  std::vector<Block> blocks;  // of launches that `finished` does not hold
};

using PeerClock = std::map<uint8_t, PeerFrontier>;  // by device
void join(PeerClock& clock, const PeerClock& other);

// Clocks are handed on as they are far more often than they grow.
using SharedPeerClock = std::shared_ptr<const PeerClock>;
// Null stands for a clock that knows nothing.
SharedPeerClock joined(const SharedPeerClock& a, const SharedPeerClock& b);

}  // namespace gpu::emulation
