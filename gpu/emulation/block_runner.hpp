// Runs one block at a time on the calling OS thread: fibers for threads that wait, barriers, warp operations, shared memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/emulation/async_engine.hpp"
#include "gpu/emulation/fault.hpp"
#include "gpu/emulation/fiber.hpp"
#include "gpu/emulation/options.hpp"
#include "gpu/emulation/pending_copies.hpp"
#include "gpu/emulation/site.hpp"

namespace gpu::emulation {

struct Index3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;

  [[nodiscard]] int64_t count() const { return int64_t{x} * y * z; }
};

inline constexpr int kWarpLen = 32;
inline constexpr int kMaxThreads = 1024;
inline constexpr int64_t kMaxSharedBytes = int64_t{227} << 10;  // what one block can have on Hopper

struct GridLaunch {
  std::string name;
  Index3 grid;
  Index3 block;
  int64_t shared_bytes = 0;
  std::function<void()> kernel;  // the body, once for each thread
};

// What the running thread may ask about itself. Written at each change of thread.
struct RunningThread {
  Index3 thread;
  Index3 block;
  Index3 block_dim;
  Index3 grid_dim;
};
inline constinit thread_local RunningThread running_thread = {};

// Does a warp operation for all its lanes: operands[lane] is what that lane left, null for lanes outside the mask.
using WarpFunction = void (*)(void* const* operands, const void* closure);

class RaceChecker;
class BlockRunner;
inline constinit thread_local BlockRunner* running_block = nullptr;

class BlockRunner {
 public:
  // `checker` may be null; it is told what orders accesses.
  BlockRunner(const Options& options, uint64_t seed, RaceChecker* checker);
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // Throws Fault. After that the runner can be used again.
  void run(const GridLaunch& launch, Index3 block);

  // The runner of the block that the calling code belongs to; null outside kernels.
  static BlockRunner* current() { return running_block; }

  // --- What follows is called by the running thread of a block. ---
  void sync_threads(Site site);
  // Waits until all lanes of `mask` have called; the last one runs `function` for all.
  void warp_operation(
      uint32_t mask, const char* what, Site site, void* operand, WarpFunction function, const void* closure);
  void sync_warp(uint32_t mask, Site site);
  // Waits until all 128 threads of the warpgroup have called; the last one runs `function` for all.
  void warpgroup_operation(const char* what,
                           Site site,
                           void* operand,
                           void (*function)(void* const* operands, void* closure),
                           void* closure);
  // Lets others run; for loops that wait for another block's or thread's word in memory.
  void yield(Site site);
  // Lets others run, and other ranks' OS threads; for loops that wait for a word of a peer's kernel.
  void yield_to_peers();
  // Lets others run if anybody can: how a checked access interrupts a thread.
  void interrupt();
  void misaligned(const void* address, int64_t num_bytes, const void* program_counter);
  // Ends the block; does not return, so callers hold nothing then that has to be freed. Where `site` is kUnknownSite, `what` says where if
  // that can be known.
  [[noreturn]] void fail(FaultKind kind, std::string what, Site site);

  [[nodiscard]] std::byte* shared_memory() { return shared_memory_; }
  [[nodiscard]] int64_t shared_bytes() const { return launch_->shared_bytes; }
  // Is the address one that an index of 32 bits can reach from shared memory, and nothing else of the process has?
  [[nodiscard]] bool reserves(const void* address) const;
  [[nodiscard]] int thread_id() const { return running_; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] RaceChecker* checker() const { return checker_; }
  [[nodiscard]] PendingCopies& pending_copies() { return threads_[static_cast<size_t>(running_)].copies; }
  [[nodiscard]] AsyncEngine& engine() { return engine_; }
  uint64_t random();

  int64_t flops = 0;  // of tensor core operations since the owner last looked

  // --- For the engine ---
  void wait_here(const char* what, Site site);
  // Ascending thread ids; they run in the order of the options.
  void make_runnable(const int* threads, int count);

 private:
  enum class Status : uint8_t { kNotStarted, kCanRun, kWaits, kExited };
  struct Thread {
    Status status = Status::kNotStarted;
    const char* waits_for = "";
    Site site;
    Fiber* fiber = nullptr;
    Index3 index;
    PendingCopies copies;
  };
  struct WarpMeeting {  // one collective call in progress
    uint32_t arrived = 0;
    uint32_t mask = 0;
    const char* what = "";
    Site site;
    std::array<void*, kWarpLen> operands = {};
  };
  struct WarpgroupMeeting {
    int num_arrived = 0;
    const char* what = "";
    Site site;
    std::array<void*, kWarpgroupLen> operands = {};
  };
  struct Barrier {
    std::vector<int> waiting;
    Site site;
  };

  static void fiber_entry(void* self);
  void fiber_loop();
  void prepare(const GridLaunch& launch, Index3 block);
  void become(int thread);
  void exit_thread();
  void change_thread();
  Fiber* take_fiber();
  int take_runnable();
  [[nodiscard]] bool any_runnable() const { return first_runnable_ < runnable_.size(); }
  [[nodiscard]] std::string waiting_report() const;
  void check_after_block();
  void abandon();

  Options options_;
  uint64_t random_state_;
  RaceChecker* checker_;
  std::byte* shared_memory_ = nullptr;

  const GridLaunch* launch_ = nullptr;
  Index3 block_;
  std::vector<Thread> threads_;
  int num_threads_ = 0;
  int num_exited_ = 0;
  int num_fruitless_yields_ = 0;
  int num_peer_yields_ = 0;
  std::vector<int> start_order_;
  size_t next_to_start_ = 0;
  std::vector<int> runnable_;  // from first_runnable_ on
  size_t first_runnable_ = 0;
  std::vector<std::array<WarpMeeting, kWarpLen>> meetings_;  // [warp][lowest lane of the mask]
  std::vector<WarpgroupMeeting> warpgroup_meetings_;
  Barrier barrier_;
  AsyncEngine engine_{*this};
  int running_ = 0;

  Fiber main_;
  Fiber* running_fiber_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::unique_ptr<Fault> fault_;
};

}  // namespace gpu::emulation
