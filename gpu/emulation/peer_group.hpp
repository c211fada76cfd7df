// Devices of one process, one a rank, whose kernels reach into each other's memory: what the race checker has to know of all of them,
// and how the failure of one ends the waits of the others. Name it in the options of each device.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

#include "gpu/emulation/memory.hpp"
#include "gpu/emulation/peer_clock.hpp"
#include "gpu/emulation/shadow.hpp"

namespace gpu::emulation {

class RaceChecker;

// Epochs are counted modulo 2^32.
inline bool has_reached(uint32_t value, uint32_t epoch) {
  return static_cast<int32_t>(value - epoch) >= 0;
}

class PeerGroup {
 public:
  // All of them are there before the first kernel runs, and until the last one has ended.
  explicit PeerGroup(int num_devices);

  // Every kernel of the group that waits for a flag, now or later, ends as a deadlock with this reason. The first one counts.
  void fail(const std::string& reason);
  [[nodiscard]] bool has_failed() const { return has_failed_; }
  [[nodiscard]] std::string failure() const;

  // --- What follows is for the devices and their race checkers ---
  struct Member {
    std::atomic<const DeviceMemory*> memory = nullptr;
    const RaceChecker* checker = nullptr;
  };
  uint8_t enter(const RaceChecker& checker, const DeviceMemory& memory);
  void leave(uint8_t device);
  // Whose memory the address could be in; null: nobody's. Asked at each access, so it takes no lock.
  [[nodiscard]] const DeviceMemory* owner_of(const void* address) const;
  [[nodiscard]] const RaceChecker* checker(uint8_t device) const { return members_.at(device).checker; }
  // Waits until every device's host has come; returns what all of them knew. Throws Fault kDeadlock.
  SharedPeerClock meet(const PeerClock& known, double timeout_s);

  std::mutex mutex;  // for what follows, and for what the checkers of the group keep
  ShadowMemory shadow;
  // What a release store of a value to a flag published.
  void published(const uint32_t* flag, uint32_t value, SharedPeerClock clock);
  // By the first store from which on the flag has had at least this value; null: none that is remembered.
  [[nodiscard]] SharedPeerClock published_by(const uint32_t* flag, uint32_t value) const;

 private:
  static constexpr size_t kMaxDevices = 256;
  static constexpr size_t kRememberedStores = 8;  // of a flag
  struct Published {
    uint32_t value = 0;
    SharedPeerClock clock;
  };

  size_t num_devices_;
  std::array<Member, kMaxDevices> members_;
  std::atomic<size_t> num_entered_ = 0;
  std::atomic<bool> has_failed_ = false;
  mutable std::mutex failure_mutex_;
  std::string failure_;
  std::unordered_map<const uint32_t*, std::deque<Published>> flags_;
  // Of the hosts' meeting in progress.
  std::condition_variable met_;
  PeerClock gathered_;
  size_t num_arrived_ = 0;
  int64_t num_meetings_ = 0;
  SharedPeerClock last_meeting_;
};

}  // namespace gpu::emulation
