// Device memory: a reserved range of addresses with a budget. Each allocation is filled with NaN and followed by a page that cannot
// be touched; an address is never given out twice, so a stale pointer is found as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace gpu::emulation {

class DeviceMemory {
 public:
  explicit DeviceMemory(int64_t budget_bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // 256-byte aligned. `what` names the allocation in reports. Throws Fault kOutOfMemory with what holds the memory.
  // The first kPoisonBytes hold 0xFF (NaN), what is beyond them 0.
  std::byte* allocate(int64_t num_bytes, std::string_view what);
  void release(std::byte* start);

  [[nodiscard]] int64_t used_bytes() const { return used_bytes_; }
  [[nodiscard]] int64_t budget_bytes() const { return budget_bytes_; }
  // Is the address one that device memory could have, allocated or not?
  [[nodiscard]] bool reserves(const void* address) const;
  // Do all bytes lie in one live allocation? For the thread that allocates.
  [[nodiscard]] bool holds(const void* start, int64_t num_bytes) const;
  // The same, asked by another device's thread.
  [[nodiscard]] bool holds_for_peer(const void* start, int64_t num_bytes) const;
  // "12 bytes behind `x` (1024 bytes)"
  [[nodiscard]] std::string describe(const void* address) const;

  static constexpr int64_t kPoisonBytes = int64_t{64} << 20;

 private:
  struct Allocation {
    std::string what;
    int64_t num_bytes = 0;
    std::byte* pages = nullptr;
    int64_t page_bytes = 0;
  };

  int64_t budget_bytes_;
  int64_t used_bytes_ = 0;
  std::byte* reserved_ = nullptr;
  std::byte* next_ = nullptr;
  std::map<const std::byte*, Allocation> allocations_;  // by first byte
  mutable std::mutex mutex_;                            // for changes, and for readers of other threads
};

}  // namespace gpu::emulation
