// What is remembered about each byte of checked memory: the last plain write, read and atomic operation.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpu::emulation {

// Whose accesses a ShadowAccess stands for, when nothing orders them among each other: the last one is kept.
enum class Sharers : uint8_t { kOneThread, kOneWarp, kMany };

struct ShadowAccess {
  uint32_t run = 0;  // which block of which launch; 0: never
  uint32_t time = 0;
  uint32_t origin = 0;
  uint16_t thread = 0;
  uint8_t device = 0;                     // which of the devices that use each other's memory; 0 for one alone
  bool is_pending = false;                // writes: an asynchronous copy that nobody has waited for yet
  bool is_async = false;                  // writes: by a unit that copies tiles
  Sharers sharers = Sharers::kOneThread;  // of reads and atomics
};

// Blocks are numbered by each device for itself.
inline bool same_run(const ShadowAccess& a, const ShadowAccess& b) {
  return a.run == b.run && a.device == b.device;
}

struct ShadowCell {
  ShadowAccess write;
  ShadowAccess read;
  ShadowAccess atomic;
  std::vector<ShadowAccess> other_reads;  // by other devices than the last one, which nothing orders before it
};

inline constexpr uintptr_t kShadowPageBytes = 4096;
inline constexpr int kSectorBytes = 32;

// One page of memory. Cells start coarse and are split when an access needs it: weights are read 16 bytes at a time, FP8 codes written
// one by one.
class ShadowPage {
 public:
  // Calls visit(cell, address) for each cell that the access touches; all of it lies in this page.
  template <typename Visit>
  void for_each(uintptr_t begin, uintptr_t num_bytes, const Visit& visit) {
    if (cells_.empty()) {  // a page of which accesses are only counted needs none
      cells_.resize(kShadowPageBytes >> shift_);
    }
    while (((begin | num_bytes) & ((uintptr_t{1} << shift_) - 1)) != 0) {
      split();
    }
    const uintptr_t page = begin & ~(kShadowPageBytes - 1);
    for (uintptr_t at = begin; at < begin + num_bytes; at += uintptr_t{1} << shift_) {
      visit(cells_[(at - page) >> shift_], at);
    }
  }

  uint64_t counted_launch = 0;  // the device and the launch that the bits below belong to
  std::array<uint64_t, 2> read_sectors = {};
  std::array<uint64_t, 2> written_sectors = {};

 private:
  void split() {
    std::vector<ShadowCell> finer(cells_.size() * 2);
    for (size_t i = 0; i < finer.size(); ++i) {
      finer[i] = cells_[i / 2];
    }
    cells_ = std::move(finer);
    --shift_;
  }

  int shift_ = 4;
  std::vector<ShadowCell> cells_;
};

class ShadowMemory {
 public:
  // `page`: its first byte's address.
  ShadowPage& page_of(uintptr_t page) {
    auto& [recent, known] = recent_[page / kShadowPageBytes % recent_.size()];
    if (recent == page && known != nullptr) {
      return *known;
    }
    auto& slot = pages_[page];
    if (slot == nullptr) {
      slot = std::make_unique<ShadowPage>();
    }
    recent = page;
    known = slot.get();
    return *slot;
  }

 private:
  std::unordered_map<uintptr_t, std::unique_ptr<ShadowPage>> pages_;
  std::array<std::pair<uintptr_t, ShadowPage*>, 64> recent_ = {};
};

}  // namespace gpu::emulation
