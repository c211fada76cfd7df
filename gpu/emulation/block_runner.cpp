#include "gpu/emulation/block_runner.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <map>
#include <new>
#include <numeric>
#include <thread>
#include <utility>

#include "gpu/emulation/race_checker.hpp"
#include "gpu/emulation/source_lines.hpp"

namespace gpu::emulation {
namespace {

constexpr size_t kCanaryBytes = 1024;  // behind the dynamic shared memory: found changed, somebody wrote too far
constexpr auto kCanary = std::byte{0xA5};
constexpr auto kPoison = std::byte{0xFF};  // NaN as BF16, FP32, FP64 and E4M3
constexpr size_t kArenaBytes = static_cast<size_t>(kMaxSharedBytes) + kCanaryBytes;
// Untouchable, on both sides of shared memory: where an index of 32 bits that is anything at all lands, of elements up to 4 bytes.
constexpr size_t kSharedGuardBytes = size_t{8} << 30;

// Of a loop that waits, while nobody in the block exits or meets: after so many a thread it is taken to wait forever.
constexpr int kMaxYieldsOfAThread = 200;

// Of a loop that waits for a peer: so many rounds at full speed, then the OS thread sleeps between them.
constexpr int kEagerPeerYields = 256;
constexpr std::chrono::microseconds kPeerSleep{50};

}  // namespace

BlockRunner::BlockRunner(const Options& options, uint64_t seed, RaceChecker* checker)
    : options_(options), random_state_(seed), checker_(checker) {
  // A mapping: page-aligned, so that it suits 1024-byte swizzle atoms, and never moved.
  void* mapped =
      mmap(nullptr, 2 * kSharedGuardBytes + kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    throw std::bad_alloc();
  }
  shared_memory_ = static_cast<std::byte*>(mapped) + kSharedGuardBytes;
  if (mprotect(shared_memory_, kArenaBytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapped, 2 * kSharedGuardBytes + kArenaBytes);
    throw std::bad_alloc();
  }
  running_fiber_ = &main_;
}

BlockRunner::~BlockRunner() {
  munmap(shared_memory_ - kSharedGuardBytes, 2 * kSharedGuardBytes + kArenaBytes);
}

bool BlockRunner::reserves(const void* address) const {
  const auto distance = static_cast<const std::byte*>(address) - (shared_memory_ - kSharedGuardBytes);
  return static_cast<size_t>(distance) < 2 * kSharedGuardBytes + kArenaBytes;
}

// splitmix64
uint64_t BlockRunner::random() {
  random_state_ += 0x9E3779B97F4A7C15U;
  uint64_t mixed = random_state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return mixed ^ (mixed >> 31);
}

void BlockRunner::prepare(const GridLaunch& launch, Index3 block) {
  launch_ = &launch;
  block_ = block;
  num_threads_ = static_cast<int>(launch.block.count());
  num_exited_ = 0;
  num_fruitless_yields_ = 0;
  num_peer_yields_ = 0;
  if (threads_.size() < static_cast<size_t>(num_threads_)) {
    threads_.resize(static_cast<size_t>(num_threads_));
    meetings_.resize(static_cast<size_t>(num_threads_ / kWarpLen));
    warpgroup_meetings_.resize(static_cast<size_t>(num_threads_ / kWarpgroupLen));
  }
  engine_.begin_block(num_threads_);
  for (int i = 0; i < num_threads_; ++i) {
    Thread& thread = threads_[static_cast<size_t>(i)];
    const auto id = static_cast<unsigned>(i);
    thread.status = Status::kNotStarted;
    thread.index = {id % launch.block.x, id / launch.block.x % launch.block.y, id / (launch.block.x * launch.block.y)};
    thread.copies.clear();
  }
  start_order_.resize(static_cast<size_t>(num_threads_));
  std::iota(start_order_.begin(), start_order_.end(), 0);
  if (options_.order.kind == OrderKind::kReverse) {
    std::reverse(start_order_.begin(), start_order_.end());
  } else if (options_.order.kind == OrderKind::kRandom) {
    for (size_t i = start_order_.size() - 1; i > 0; --i) {
      std::swap(start_order_[i], start_order_[random() % (i + 1)]);
    }
  }
  next_to_start_ = 0;
  runnable_.clear();
  first_runnable_ = 0;
  barrier_.waiting.clear();
  std::memset(shared_memory_, static_cast<int>(kPoison), static_cast<size_t>(launch.shared_bytes));
  std::memset(shared_memory_ + launch.shared_bytes, static_cast<int>(kCanary), kCanaryBytes);
}

void BlockRunner::run(const GridLaunch& launch, Index3 block) {
  prepare(launch, block);
  running_thread.block = block;
  running_thread.block_dim = launch.block;
  running_thread.grid_dim = launch.grid;
  running_block = this;
  if (checker_ != nullptr) {
    checker_->begin_block(*this, block);
  }
  change_thread();  // returns when all threads have exited or the block failed
  running_block = nullptr;
  if (checker_ != nullptr) {
    checker_->end_block();
  }
  if (fault_ == nullptr && num_exited_ != num_threads_) {
    fault_ = std::make_unique<Fault>(
        FaultKind::kDeadlock,
        fmt::format(
            "kernel {}, block ({}, {}, {}): deadlock: {}", launch.name, block.x, block.y, block.z, waiting_report()));
  }
  if (fault_ == nullptr) {
    check_after_block();
  }
  if (fault_ != nullptr) {
    abandon();
    throw *std::exchange(fault_, nullptr);
  }
}

void BlockRunner::check_after_block() {
  if (const char* what = engine_.unfinished(); what != nullptr) {
    fault_ = std::make_unique<Fault>(
        FaultKind::kRace,
        fmt::format("kernel {}, block ({}, {}, {}): {}", launch_->name, block_.x, block_.y, block_.z, what));
    return;
  }
  const std::byte* canary = shared_memory_ + launch_->shared_bytes;
  const auto* changed = std::find_if(canary, canary + kCanaryBytes, [](std::byte b) { return b != kCanary; });
  if (changed != canary + kCanaryBytes) {
    fault_ = std::make_unique<Fault>(
        FaultKind::kSharedOverrun,
        fmt::format(
            "kernel {}, block ({}, {}, {}): byte {} of shared memory was written, but the launch asked for {} bytes",
            launch_->name,
            block_.x,
            block_.y,
            block_.z,
            changed - shared_memory_,
            launch_->shared_bytes));
  }
}

// The fibers of a failed block hold half-run kernels: they start anew.
void BlockRunner::abandon() {
  idle_.clear();
  for (const auto& fiber : fibers_) {
    fiber->reset();
    idle_.push_back(fiber.get());
  }
  for (auto& warp : meetings_) {
    warp = {};
  }
  for (auto& warpgroup : warpgroup_meetings_) {
    warpgroup = {};
  }
}

void BlockRunner::fiber_entry(void* self) {
  static_cast<BlockRunner*>(self)->fiber_loop();
}

// One fiber runs thread after thread as long as none of them waits.
void BlockRunner::fiber_loop() {
  for (;;) {
    while (next_to_start_ < start_order_.size()) {
      const int thread = start_order_[next_to_start_++];
      threads_[static_cast<size_t>(thread)].status = Status::kCanRun;
      threads_[static_cast<size_t>(thread)].fiber = running_fiber_;
      become(thread);
      launch_->kernel();
      exit_thread();
    }
    idle_.push_back(running_fiber_);
    change_thread();
  }
}

void BlockRunner::become(int thread) {
  running_ = thread;
  running_thread.thread = threads_[static_cast<size_t>(thread)].index;
}

void BlockRunner::exit_thread() {
  threads_[static_cast<size_t>(running_)].status = Status::kExited;
  ++num_exited_;
  num_fruitless_yields_ = 0;
  if (!barrier_.waiting.empty()) {
    fail(FaultKind::kDivergence,
         fmt::format("thread {} exited while {} thread(s) wait at sync_threads", running_, barrier_.waiting.size()),
         barrier_.site);
  }
}

Fiber* BlockRunner::take_fiber() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(&BlockRunner::fiber_entry, this, static_cast<int>(fibers_.size())));
    return fibers_.back().get();
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

int BlockRunner::take_runnable() {
  if (options_.order.kind == OrderKind::kRandom) {
    const size_t chosen = first_runnable_ + random() % (runnable_.size() - first_runnable_);
    std::swap(runnable_[chosen], runnable_[first_runnable_]);
  }
  const int thread = runnable_[first_runnable_++];
  if (first_runnable_ == runnable_.size()) {
    runnable_.clear();
    first_runnable_ = 0;
  }
  return thread;
}

void BlockRunner::make_runnable(const int* threads, int count) {
  num_fruitless_yields_ = 0;
  for (int i = 0; i < count; ++i) {
    const int thread = options_.order.kind == OrderKind::kReverse ? threads[count - 1 - i] : threads[i];
    threads_[static_cast<size_t>(thread)].status = Status::kCanRun;
    runnable_.push_back(thread);
  }
}

// Continues somebody who can run, else starts a thread, else goes back to run().
void BlockRunner::change_thread() {
  Fiber* to = &main_;
  int thread = -1;
  const bool may_start = fault_ == nullptr && next_to_start_ < start_order_.size();
  while (fault_ == nullptr && !may_start && !any_runnable() && num_exited_ < num_threads_ && engine_.has_tiles()) {
    engine_.copy_one_tile();
  }
  const bool start_first = options_.order.kind == OrderKind::kRandom && may_start && random() % 2 == 0;
  if (fault_ == nullptr && any_runnable() && !start_first) {
    thread = take_runnable();
    to = threads_[static_cast<size_t>(thread)].fiber;
  } else if (may_start) {
    to = take_fiber();
  }
  Fiber* from = running_fiber_;
  if (thread >= 0) {
    become(thread);
  }
  if (to != from) {
    running_fiber_ = to;
    Fiber::change(*from, *to);
  }
}

void BlockRunner::wait_here(const char* what, Site site) {
  Thread& me = threads_[static_cast<size_t>(running_)];
  me.status = Status::kWaits;
  me.waits_for = what;
  me.site = site;
  change_thread();
}

void BlockRunner::yield(Site site) {
  if (++num_fruitless_yields_ > kMaxYieldsOfAThread * num_threads_) {
    fail(FaultKind::kDeadlock,
         "waits in a loop for a value that no thread of this block writes; blocks run one after another here",
         site);
  }
  threads_[static_cast<size_t>(running_)].status = Status::kCanRun;
  runnable_.push_back(running_);
  change_thread();
}

void BlockRunner::yield_to_peers() {
  if (++num_peer_yields_ < kEagerPeerYields) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(kPeerSleep);
  }
  interrupt();
}

void BlockRunner::interrupt() {
  if (any_runnable() || next_to_start_ < start_order_.size()) {
    threads_[static_cast<size_t>(running_)].status = Status::kCanRun;
    runnable_.push_back(running_);
    change_thread();
  }
}

void BlockRunner::misaligned(const void* address, int64_t num_bytes, const void* program_counter) {
  std::string what = fmt::format("{}: access of {} bytes at address {}",
                                 source_line(reinterpret_cast<uintptr_t>(program_counter)),
                                 num_bytes,
                                 address);
  fail(FaultKind::kMisaligned, std::move(what), kUnknownSite);
}

void BlockRunner::sync_threads(Site site) {
  if (barrier_.waiting.empty()) {
    barrier_.site = site;
  } else if (!(barrier_.site == site)) {
    fail(FaultKind::kDivergence,
         fmt::format("thread {} is at this sync_threads while {} thread(s) wait at {}:{}",
                     running_,
                     barrier_.waiting.size(),
                     barrier_.site.file,
                     barrier_.site.line),
         site);
  }
  if (num_exited_ > 0) {
    fail(FaultKind::kDivergence,
         fmt::format("thread {} is at sync_threads, but {} thread(s) of the block have exited", running_, num_exited_),
         site);
  }
  if (static_cast<int>(barrier_.waiting.size()) + 1 < num_threads_) {
    barrier_.waiting.push_back(running_);
    wait_here("sync_threads", site);
    return;
  }
  std::sort(barrier_.waiting.begin(), barrier_.waiting.end());
  make_runnable(barrier_.waiting.data(), static_cast<int>(barrier_.waiting.size()));
  barrier_.waiting.clear();
  if (checker_ != nullptr) {
    checker_->block_met();
  }
}

void BlockRunner::warp_operation(
    uint32_t mask, const char* what, Site site, void* operand, WarpFunction function, const void* closure) {
  const int lane = running_ % kWarpLen;
  const int warp = running_ / kWarpLen;
  if ((mask >> lane & 1U) == 0) {
    fail(FaultKind::kDivergence,
         fmt::format("lane {} calls {} with mask {:#x}, which leaves it out", lane, what, mask),
         site);
  }
  WarpMeeting& meeting = meetings_[static_cast<size_t>(warp)][static_cast<size_t>(std::countr_zero(mask))];
  if (meeting.arrived == 0) {
    meeting.mask = mask;
    meeting.what = what;
    meeting.site = site;
  } else if (meeting.mask != mask || !(meeting.site == site) || meeting.what != what) {
    fail(FaultKind::kDivergence,
         fmt::format(
             "warp divergence: lane {} is at {} with mask {:#x} while others wait at {} with mask {:#x} at {}:{}",
             lane,
             what,
             mask,
             meeting.what,
             meeting.mask,
             meeting.site.file,
             meeting.site.line),
         site);
  }
  meeting.operands[static_cast<size_t>(lane)] = operand;
  meeting.arrived |= 1U << lane;
  if (meeting.arrived != mask) {
    wait_here(what, site);
    return;
  }
  meeting.arrived = 0;
  function(meeting.operands.data(), closure);
  std::array<int, kWarpLen> others;
  int num_others = 0;
  for (uint32_t rest = mask & ~(1U << lane); rest != 0; rest &= rest - 1) {
    others[static_cast<size_t>(num_others++)] = warp * kWarpLen + std::countr_zero(rest);
  }
  make_runnable(others.data(), num_others);
}

void BlockRunner::warpgroup_operation(
    const char* what, Site site, void* operand, void (*function)(void* const* operands, void* closure), void* closure) {
  const auto group = static_cast<size_t>(running_ / kWarpgroupLen);
  if (group >= warpgroup_meetings_.size()) {
    fail(FaultKind::kDivergence, fmt::format("{} outside a warpgroup of 128 threads", what), site);
  }
  WarpgroupMeeting& meeting = warpgroup_meetings_[group];
  if (meeting.num_arrived == 0) {
    meeting.what = what;
    meeting.site = site;
  } else if (!(meeting.site == site) || meeting.what != what) {
    fail(FaultKind::kDivergence,
         fmt::format("warpgroup divergence: thread {} is at {} while others wait at {} at {}:{}",
                     running_,
                     what,
                     meeting.what,
                     meeting.site.file,
                     meeting.site.line),
         site);
  }
  meeting.operands[static_cast<size_t>(running_ % kWarpgroupLen)] = operand;
  if (++meeting.num_arrived < kWarpgroupLen) {
    wait_here(what, site);
    return;
  }
  meeting.num_arrived = 0;
  function(meeting.operands.data(), closure);
  std::array<int, kWarpgroupLen> others;
  int num_others = 0;
  for (int i = 0; i < kWarpgroupLen; ++i) {
    const int thread = static_cast<int>(group) * kWarpgroupLen + i;
    if (thread != running_) {
      others[static_cast<size_t>(num_others++)] = thread;
    }
  }
  make_runnable(others.data(), num_others);
}

void BlockRunner::sync_warp(uint32_t mask, Site site) {
  struct Closure {
    BlockRunner* runner;
    uint32_t mask;
  } const closure{this, mask};
  warp_operation(
      mask,
      "sync_warp",
      site,
      nullptr,
      [](void* const* /*operands*/, const void* what) {
        const auto& [runner, lanes] = *static_cast<const Closure*>(what);
        if (runner->checker_ != nullptr) {
          runner->checker_->warp_met(runner->running_ / kWarpLen, lanes);
        }
      },
      &closure);
}

// "31 thread(s) shuffle at file:line; 1 thread(s) exited"
std::string BlockRunner::waiting_report() const {
  std::map<std::string, int> counts;
  for (int i = 0; i < num_threads_; ++i) {
    const Thread& thread = threads_[static_cast<size_t>(i)];
    const std::string what =
        thread.status == Status::kWaits
            ? fmt::format("wait at {} at {}:{}", thread.waits_for, thread.site.file, thread.site.line)
            : "exited";
    ++counts[what];
  }
  std::string report;
  for (const auto& [what, count] : counts) {
    report += fmt::format("{}{} thread(s) {}", report.empty() ? "" : "; ", count, what);
  }
  return report;
}

void BlockRunner::fail(FaultKind kind, std::string what, Site site) {
  fault_ = std::make_unique<Fault>(kind,
                                   fmt::format("kernel {}, block ({}, {}, {}), thread {}: {}{}",
                                               launch_->name,
                                               block_.x,
                                               block_.y,
                                               block_.z,
                                               running_,
                                               site == kUnknownSite ? "" : fmt::format("{}:{}: ", site.file, site.line),
                                               what));
  what = std::string();  // this stack is never unwound
  change_thread();       // to run(): with a fault nothing else is chosen
  std::abort();
}

}  // namespace gpu::emulation
