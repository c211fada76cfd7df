// The race checker's part for devices that share memory: what they know of each other.
#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "gpu/emulation/peer_group.hpp"
#include "gpu/emulation/race_checker.hpp"

namespace gpu::emulation {

RaceChecker::RaceChecker(const DeviceMemory& memory, bool finds_races, std::shared_ptr<PeerGroup> peers)
    : memory_(memory), finds_races_(finds_races), peers_(std::move(peers)) {
  if (peers_ != nullptr) {
    device_ = peers_->enter(*this, memory_);
  }
}

RaceChecker::~RaceChecker() {
  if (peers_ != nullptr) {
    peers_->leave(device_);
  }
}

std::unique_lock<std::mutex> RaceChecker::lock_peers() const {
  return peers_ != nullptr ? std::unique_lock(peers_->mutex) : std::unique_lock<std::mutex>();
}

int64_t RaceChecker::meet_peers(const QueueClock& host_clock, double timeout_s) {
  const auto peers = peers_at(host_clock);
  PeerClock known = peers != nullptr ? *peers : PeerClock();
  join(known, {{device_, {host_clock, {}}}});
  auto& meetings = peers_behind_[kMeetings];
  const auto count = static_cast<int64_t>(meetings.size()) + 1;
  meetings[count] = peers_->meet(known, timeout_s);
  return count;
}

// Joined over the streams that the clock knows.
SharedPeerClock RaceChecker::peers_at(const QueueClock& clock) const {
  SharedPeerClock known;
  for (const auto& [stream, place] : clock) {
    const auto of_stream = peers_behind_.find(stream);
    if (of_stream == peers_behind_.end()) {
      continue;
    }
    const auto above = of_stream->second.upper_bound(place);
    if (above != of_stream->second.begin()) {
      known = joined(known, std::prev(above)->second);
    }
  }
  return known;
}

// Publishes what the thread did and learnt: its block's accesses, those of blocks and launches ordered before them, and of the peers'
// what was known here.
void RaceChecker::release(int thread, uint32_t* to, uint32_t value) {
  if (peers_ == nullptr) {
    std::atomic_ref<uint32_t>(*to).store(value, std::memory_order_release);
    return;
  }
  const Launch& launch = launches_.back();
  const int64_t place = launch.clock.at(launch.stream);
  PeerFrontier own{has_waited(thread) ? launch.clock : launch.early_clock,
                   {{release_of(thread), launch.stream, place}}};
  own.finished[launch.stream] = std::min(own.finished[launch.stream], place - 1);
  for (const Acquired& known : acquired_) {
    if (in_block_before(known.thread, known.time, Sharers::kOneThread, thread)) {
      own.blocks.push_back({known.release, launch.stream, place});
    }
  }
  const auto lock = lock_peers();
  const auto peers = joined(has_waited(thread) ? peers_at_launch_ : peers_at_early_launch_, learnt_from_peers(thread));
  PeerClock clock = peers != nullptr ? *peers : PeerClock();
  join(clock, {{device_, std::move(own)}});
  peers_->published(to, value, std::make_shared<PeerClock>(std::move(clock)));
  std::atomic_ref<uint32_t>(*to).store(value, std::memory_order_release);
  ++time_;
}

// What the thread and those ordered before it have learnt in the running block.
SharedPeerClock RaceChecker::learnt_from_peers(int thread) const {
  SharedPeerClock learnt;
  for (const AcquiredFromPeer& known : acquired_from_peers_) {
    if (in_block_before(known.thread, known.time, Sharers::kOneThread, thread)) {
      learnt = joined(learnt, known.clock);
    }
  }
  return learnt;
}

uint32_t RaceChecker::acquire(int thread, const uint32_t* from, std::optional<uint32_t> awaited_epoch) {
  const auto lock = lock_peers();
  const uint32_t value = std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(from)).load(std::memory_order_acquire);
  const uint32_t epoch = awaited_epoch.value_or(value);
  if (peers_ == nullptr || !has_reached(value, epoch)) {
    return value;
  }
  const SharedPeerClock learnt = peers_->published_by(from, epoch);
  const bool is_repeated =
      std::any_of(acquired_from_peers_.begin(), acquired_from_peers_.end(), [&](const AcquiredFromPeer& known) {
        return known.thread == thread && known.clock == learnt;
      });
  if (learnt != nullptr && !is_repeated) {
    acquired_from_peers_.push_back({learnt, thread, time_++});
    peers_acquired_in_launch_ = joined(peers_acquired_in_launch_, learnt);
  }
  return value;
}

bool RaceChecker::is_known(const SharedPeerClock& clock, const ShadowAccess& earlier) const {
  if (clock == nullptr || !clock->contains(earlier.device)) {
    return false;
  }
  const auto& [finished, blocks] = clock->at(earlier.device);
  const RaceChecker& peer = *peers_->checker(earlier.device);
  const Launch& launch = peer.launches_[peer.runs_[earlier.run].launch];
  const auto known = finished.find(launch.stream);
  return (known != finished.end() && known->second >= launch.clock.at(launch.stream)) ||
         std::any_of(blocks.begin(), blocks.end(), [&](const PeerFrontier::Block& block) {
           return block.release.run == earlier.run && covers(block.release, earlier);
         });
}

bool RaceChecker::peers_order(const ShadowAccess& earlier, int later_thread) const {
  return is_known(has_waited(later_thread) ? peers_at_launch_ : peers_at_early_launch_, earlier) ||
         std::any_of(acquired_from_peers_.begin(), acquired_from_peers_.end(), [&](const AcquiredFromPeer& known) {
           return in_block_before(known.thread, known.time, Sharers::kOneThread, later_thread) &&
                  is_known(known.clock, earlier);
         });
}

const DeviceMemory* RaceChecker::memory_of(const void* address) const {
  return memory_.reserves(address) ? &memory_ : peers_ != nullptr ? peers_->owner_of(address) : nullptr;
}

}  // namespace gpu::emulation
