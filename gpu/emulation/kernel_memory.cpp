#include "gpu/emulation/kernel_memory.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "gpu/emulation/race_checker.hpp"

namespace gpu::emulation {
namespace {

constexpr int kCopyBytes = 16;
constexpr int kPoison = 0xFF;

void move_bytes(const PendingCopy& copy) {
  if (copy.valid_bytes == kCopyBytes) {  // nearly always, and a known size is one instruction
    std::memcpy(copy.to, copy.from, kCopyBytes);
    return;
  }
  std::memset(copy.to, 0, kCopyBytes);
  std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.valid_bytes));
}

// Emptied groups, with the memory that they had: a pipeline commits one a thread and stage.
thread_local std::vector<std::vector<PendingCopy>> spare_groups;

std::vector<PendingCopy> take_group() {
  if (spare_groups.empty()) {
    return {};
  }
  auto group = std::move(spare_groups.back());
  spare_groups.pop_back();
  return group;
}

void give_back_group(std::vector<PendingCopy> group) {
  group.clear();
  spare_groups.push_back(std::move(group));
}

}  // namespace

void note(const void* address, int num_bytes, AccessKind kind, Site site) {
  BlockRunner& runner = *BlockRunner::current();
  if (RaceChecker* checker = runner.checker(); checker != nullptr && num_bytes > 0 && checker->watches(address)) {
    checker->access(runner.thread_id(), address, num_bytes, kind, checker->origin_of(site));
  }
}

void fail_misaligned(const void* address, int num_bytes, Site site) {
  BlockRunner::current()->fail(
      FaultKind::kMisaligned, fmt::format("vector of {} bytes at address {}", num_bytes, address), site);
}

int32_t atomic_add(int32_t* to, int32_t value, Site site) {
  note(to, sizeof(*to), AccessKind::kAtomic, site);
  BlockRunner& runner = *BlockRunner::current();
  if (runner.checker() != nullptr) {
    runner.checker()->atomic(runner.thread_id(), to);
  }
  return std::atomic_ref<int32_t>(*to).fetch_add(value);
}

void thread_fence() {
  BlockRunner& runner = *BlockRunner::current();
  if (runner.checker() != nullptr) {
    runner.checker()->fence(runner.thread_id());
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void wait_for_earlier_grids() {
  BlockRunner& runner = *BlockRunner::current();
  if (runner.checker() != nullptr) {
    runner.checker()->wait_for_earlier_grids(runner.thread_id());
  }
}

void copy_async(void* to, const void* from, int valid_bytes, Site site) {
  require_aligned(to, kCopyBytes, site);
  require_aligned(from, valid_bytes > 0 ? kCopyBytes : 1, site);
  BlockRunner& runner = *BlockRunner::current();
  if (runner.checker() != nullptr) {
    note(from, valid_bytes, AccessKind::kRead, site);
    note(to, kCopyBytes, AccessKind::kPendingWrite, site);
  }
  // In its place and field by field: as a whole it would be copied in wider pieces than it was written, which stalls.
  PendingCopy& copy = runner.pending_copies().open.emplace_back();
  copy.to = to;
  copy.from = from;
  copy.valid_bytes = valid_bytes;
  copy.site = site;
  copy.is_done = runner.options().order.kind == OrderKind::kRandom && runner.random() % 2 == 0;
  if (copy.is_done) {
    move_bytes(copy);
  } else {
    std::memset(to, kPoison, kCopyBytes);
    __builtin_prefetch(from);
  }
}

void commit_copies() {
  PendingCopies& copies = BlockRunner::current()->pending_copies();
  copies.groups.push_back(std::exchange(copies.open, take_group()));
}

void wait_copies(int num_groups_left, Site /*site*/) {
  BlockRunner& runner = *BlockRunner::current();
  PendingCopies& copies = runner.pending_copies();
  while (static_cast<int>(copies.groups.size()) > num_groups_left) {
    for (const PendingCopy& copy : copies.groups.front()) {
      if (runner.checker() != nullptr) {
        note(copy.to, kCopyBytes, AccessKind::kWrite, copy.site);
      }
      if (!copy.is_done) {
        move_bytes(copy);
      }
    }
    give_back_group(std::move(copies.groups.front()));
    copies.groups.erase(copies.groups.begin());
  }
}

}  // namespace gpu::emulation
