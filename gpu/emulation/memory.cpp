#include "gpu/emulation/memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "gpu/emulation/fault.hpp"
#include "model/check.hpp"

namespace gpu::emulation {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kAlignment = 256;
constexpr int64_t kReservedBytes = int64_t{1} << 40;
// Before the first allocation: where an offset that overflowed 32 bits lands.
constexpr int64_t kLeadBytes = int64_t{64} << 30;
constexpr int kPoison = 0xFF;

int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

DeviceMemory::DeviceMemory(int64_t budget_bytes) : budget_bytes_(budget_bytes) {
  void* mapped = mmap(nullptr, kReservedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    throw std::bad_alloc();
  }
  reserved_ = static_cast<std::byte*>(mapped);
  next_ = reserved_ + kLeadBytes;
}

DeviceMemory::~DeviceMemory() {
  munmap(reserved_, kReservedBytes);
}

std::byte* DeviceMemory::allocate(int64_t num_bytes, std::string_view what) {
  CHECK(num_bytes >= 0);
  if (num_bytes > budget_bytes_ - used_bytes_) {
    std::string holders;
    for (const auto& [start, allocation] : allocations_) {
      holders += fmt::format("\n  {:>14} bytes {}", allocation.num_bytes, allocation.what);
    }
    throw Fault(FaultKind::kOutOfMemory,
                fmt::format("out of device memory: {} bytes for {}, but only {} of {} are free{}",
                            num_bytes,
                            what,
                            budget_bytes_ - used_bytes_,
                            budget_bytes_,
                            holders));
  }
  // The last byte lies as near to the untouchable page as alignment permits.
  const int64_t room = round_up(std::max<int64_t>(num_bytes, 1), kAlignment);
  const int64_t page_bytes = round_up(room, kPageBytes);
  CHECK(next_ + page_bytes + kPageBytes <= reserved_ + kReservedBytes);
  std::byte* const pages = next_;
  if (mprotect(pages, static_cast<size_t>(page_bytes), PROT_READ | PROT_WRITE) != 0) {
    throw std::bad_alloc();
  }
  next_ += page_bytes + kPageBytes;
  std::byte* const start = pages + page_bytes - room;
  std::memset(start, kPoison, static_cast<size_t>(std::min(room, kPoisonBytes)));
  const std::lock_guard lock(mutex_);
  allocations_[start] = {std::string(what), num_bytes, pages, page_bytes};
  used_bytes_ += num_bytes;
  return start;
}

void DeviceMemory::release(std::byte* start) {
  const auto found = allocations_.find(start);
  CHECK(found != allocations_.end());
  used_bytes_ -= found->second.num_bytes;
  const auto page_bytes = static_cast<size_t>(found->second.page_bytes);
  madvise(found->second.pages, page_bytes, MADV_DONTNEED);
  mprotect(found->second.pages, page_bytes, PROT_NONE);
  const std::lock_guard lock(mutex_);
  allocations_.erase(found);
}

bool DeviceMemory::reserves(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  return byte >= reserved_ && byte < reserved_ + kReservedBytes;
}

bool DeviceMemory::holds(const void* start, int64_t num_bytes) const {
  const auto* first = static_cast<const std::byte*>(start);
  auto above = allocations_.upper_bound(first);
  if (above == allocations_.begin()) {
    return false;
  }
  const auto& [begin, allocation] = *std::prev(above);
  return first + num_bytes <= begin + allocation.num_bytes;
}

bool DeviceMemory::holds_for_peer(const void* start, int64_t num_bytes) const {
  const std::lock_guard lock(mutex_);
  return holds(start, num_bytes);
}

std::string DeviceMemory::describe(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  const auto above = allocations_.upper_bound(byte);
  if (above != allocations_.begin()) {
    const auto& [begin, allocation] = *std::prev(above);
    if (byte < begin + allocation.num_bytes) {
      return fmt::format("byte {} of `{}`", byte - begin, allocation.what);
    }
    if (above == allocations_.end() || byte - begin - allocation.num_bytes < above->first - byte) {
      return fmt::format("{} bytes behind `{}` ({} bytes)",
                         byte - begin - allocation.num_bytes,
                         allocation.what,
                         allocation.num_bytes);
    }
  }
  if (above != allocations_.end()) {
    return fmt::format(
        "{} bytes before `{}` ({} bytes)", above->first - byte, above->second.what, above->second.num_bytes);
  }
  return "device memory in which nothing is allocated";
}

}  // namespace gpu::emulation
