#include "gpu/emulation/peer_group.hpp"

#include <chrono>
#include <memory>
#include <utility>

#include "gpu/emulation/fault.hpp"
#include "model/check.hpp"

namespace gpu::emulation {

PeerGroup::PeerGroup(int num_devices) : num_devices_(static_cast<size_t>(num_devices)) {
  CHECK(num_devices >= 1 && num_devices_ <= kMaxDevices);
}

void PeerGroup::fail(const std::string& reason) {
  {
    const std::lock_guard lock(failure_mutex_);
    failure_ = has_failed_ ? failure_ : reason;
    has_failed_ = true;
  }
  const std::lock_guard lock(mutex);  // nobody is between looking at the failure and waiting
  met_.notify_all();
}

std::string PeerGroup::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

uint8_t PeerGroup::enter(const RaceChecker& checker, const DeviceMemory& memory) {
  const std::lock_guard lock(mutex);
  CHECK(num_entered_ < num_devices_);
  members_[num_entered_].checker = &checker;
  members_[num_entered_].memory = &memory;
  return static_cast<uint8_t>(num_entered_++);
}

void PeerGroup::leave(uint8_t device) {
  const std::lock_guard lock(mutex);
  members_[device].memory = nullptr;
  members_[device].checker = nullptr;
}

const DeviceMemory* PeerGroup::owner_of(const void* address) const {
  for (size_t i = 0; i < num_entered_; ++i) {
    if (const DeviceMemory* memory = members_[i].memory; memory != nullptr && memory->reserves(address)) {
      return memory;
    }
  }
  return nullptr;
}

void PeerGroup::published(const uint32_t* flag, uint32_t value, SharedPeerClock clock) {
  auto& stores = flags_[flag];
  stores.push_back({value, std::move(clock)});
  if (stores.size() > kRememberedStores) {
    stores.pop_front();
  }
}

SharedPeerClock PeerGroup::published_by(const uint32_t* flag, uint32_t value) const {
  const auto stores = flags_.find(flag);
  SharedPeerClock first;
  if (stores == flags_.end()) {
    return first;
  }
  for (auto store = stores->second.rbegin(); store != stores->second.rend() && has_reached(store->value, value);
       ++store) {
    first = store->clock;
  }
  return first;
}

SharedPeerClock PeerGroup::meet(const PeerClock& known, double timeout_s) {
  std::unique_lock lock(mutex);
  join(gathered_, known);
  const int64_t meeting = num_meetings_;
  if (++num_arrived_ == num_devices_) {
    last_meeting_ = std::make_shared<PeerClock>(std::exchange(gathered_, {}));
    num_arrived_ = 0;
    ++num_meetings_;
    met_.notify_all();
    return last_meeting_;
  }
  const auto has_ended = [&] { return num_meetings_ != meeting || has_failed_; };
  const bool in_time = met_.wait_for(lock, std::chrono::duration<double>(timeout_s), has_ended);
  if (num_meetings_ == meeting) {
    throw Fault(FaultKind::kDeadlock,
                in_time ? "a peer failed: " + failure() : "a peer's host did not come to a meeting of all ranks");
  }
  return last_meeting_;
}

}  // namespace gpu::emulation
