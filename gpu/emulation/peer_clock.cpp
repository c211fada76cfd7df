#include "gpu/emulation/peer_clock.hpp"

#include <algorithm>

#include "gpu/emulation/block_runner.hpp"

namespace gpu::emulation {

void join(QueueClock& clock, const QueueClock& other) {
  for (const auto& [stream, count] : other) {
    auto& mine = clock[stream];
    mine = std::max(mine, count);
  }
}

bool covers(const Release& release, const ShadowAccess& access) {
  const bool same_thread = release.thread == access.thread && access.sharers == Sharers::kOneThread;
  const bool same_warp = release.thread / kWarpLen == access.thread / kWarpLen && access.sharers != Sharers::kMany;
  return (same_thread && access.time <= release.own_time) || (same_warp && access.time < release.warp_time) ||
         access.time < release.block_time;
}

void join(PeerClock& clock, const PeerClock& other) {
  for (const auto& [device, theirs] : other) {
    PeerFrontier& mine = clock[device];
    join(mine.finished, theirs.finished);
    for (const PeerFrontier::Block& block : theirs.blocks) {
      const auto same = std::find_if(mine.blocks.begin(), mine.blocks.end(), [&](const PeerFrontier::Block& known) {
        return known.release.run == block.release.run && known.release.thread == block.release.thread;
      });
      if (same == mine.blocks.end()) {
        mine.blocks.push_back(block);
      } else if (same->release.own_time < block.release.own_time) {
        *same = block;
      }
    }
    std::erase_if(mine.blocks, [&](const PeerFrontier::Block& block) {
      const auto known = mine.finished.find(block.stream);
      return known != mine.finished.end() && known->second >= block.place;
    });
  }
}

SharedPeerClock joined(const SharedPeerClock& a, const SharedPeerClock& b) {
  if (a == nullptr || a == b) {
    return b;
  }
  if (b == nullptr) {
    return a;
  }
  auto both = std::make_shared<PeerClock>(*a);
  join(*both, *b);
  return both;
}

}  // namespace gpu::emulation
