#include "gpu/emulation/kernel_peers.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <optional>

#include "gpu/emulation/block_runner.hpp"
#include "gpu/emulation/kernel_memory.hpp"
#include "gpu/emulation/peer_group.hpp"
#include "gpu/emulation/race_checker.hpp"

namespace gpu::emulation {
namespace {

uint32_t load(const uint32_t* from, std::optional<uint32_t> awaited_epoch, Site site) {
  require_aligned(from, sizeof(*from), site);
  note(from, sizeof(*from), AccessKind::kAtomic, site);
  BlockRunner& runner = *BlockRunner::current();
  if (runner.checker() != nullptr) {
    return runner.checker()->acquire(runner.thread_id(), from, awaited_epoch);
  }
  return std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(from)).load(std::memory_order_acquire);
}

}  // namespace

void store_release_system(uint32_t* to, uint32_t value, Site site) {
  require_aligned(to, sizeof(*to), site);
  note(to, sizeof(*to), AccessKind::kAtomic, site);
  BlockRunner& runner = *BlockRunner::current();
  if (runner.checker() != nullptr) {
    runner.checker()->release(runner.thread_id(), to, value);
  } else {
    std::atomic_ref<uint32_t>(*to).store(value, std::memory_order_release);
  }
}

uint32_t load_acquire_system(const uint32_t* from, Site site) {
  return load(from, std::nullopt, site);
}

void wait_for_flag(const uint32_t* flag, uint32_t epoch, Site site) {
  using Clock = std::chrono::steady_clock;
  BlockRunner& runner = *BlockRunner::current();
  const Options& options = runner.options();
  const auto give_up = Clock::now() + std::chrono::duration<double>(options.peer_timeout_s);
  for (uint32_t value = load(flag, epoch, site); !has_reached(value, epoch); value = load(flag, epoch, site)) {
    if (options.peers != nullptr && options.peers->has_failed()) {
      runner.fail(FaultKind::kDeadlock, "waits for a flag, but a peer failed: " + options.peers->failure(), site);
    }
    if (Clock::now() > give_up) {
      runner.fail(
          FaultKind::kDeadlock,
          fmt::format("waited {} s for a peer's flag to reach {}; it is {}", options.peer_timeout_s, epoch, value),
          site);
    }
    runner.yield_to_peers();
  }
}

}  // namespace gpu::emulation
