#include "gpu/emulation/race_checker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "gpu/emulation/peer_group.hpp"
#include "gpu/emulation/source_lines.hpp"

namespace gpu::emulation {
namespace {

constexpr Origin kIsSite = 0x80000000U;
constexpr size_t kMaxReported = 3;

}  // namespace

Origin RaceChecker::origin_of(const void* program_counter) {
  return static_cast<Origin>(reinterpret_cast<uintptr_t>(program_counter) - image_base());
}

Origin RaceChecker::origin_of(Site site) {
  const auto lock = lock_peers();
  auto found = std::find(sites_.begin(), sites_.end(), site);
  if (found == sites_.end()) {
    found = sites_.insert(sites_.end(), site);
  }
  return kIsSite | static_cast<Origin>(found - sites_.begin());
}

void RaceChecker::begin_launch(const std::string& name, int stream, const QueueClock& clock, bool early) {
  Launch launch{name, stream, clock, clock, early};
  --launch.early_clock[stream];  // itself
  --launch.early_clock[stream];  // and what stands in front of it
  const auto lock = lock_peers();
  if (peers_ != nullptr) {
    peers_at_launch_ = peers_at(launch.clock);
    peers_at_early_launch_ = peers_at(launch.early_clock);
    peers_acquired_in_launch_ = nullptr;
  }
  launches_.push_back(std::move(launch));
  released_.clear();
  counts_ = {};
  races_.clear();
  reported_.clear();
}

AccessCounts RaceChecker::end_launch() {
  throw_races("");
  if (peers_ != nullptr) {
    const Launch& launch = launches_.back();
    auto& of_stream = peers_behind_[launch.stream];
    const auto behind = joined(peers_at_launch_, peers_acquired_in_launch_);
    if (of_stream.empty() || of_stream.rbegin()->second != behind) {
      of_stream[launch.clock.at(launch.stream)] = behind;
    }
  }
  return counts_;
}

void RaceChecker::throw_races(const std::string& what_came_of_them) const {
  if (races_.empty()) {
    return;
  }
  std::string text;
  for (const std::string& race : races_) {
    text += (text.empty() ? "" : "\n") + race;
  }
  throw Fault(FaultKind::kRace, what_came_of_them.empty() ? text : text + "\n" + what_came_of_them);
}

void RaceChecker::begin_block(BlockRunner& runner, Index3 block) {
  const auto lock = lock_peers();
  runner_ = &runner;
  runs_.push_back({static_cast<uint32_t>(launches_.size()) - 1, block});
  run_ = static_cast<uint32_t>(runs_.size()) - 1;
  block_time_ = ++time_;
  const auto num_threads = static_cast<size_t>(running_thread.block_dim.count());
  warps_.assign(num_threads / kWarpLen, {});
  fences_.assign(num_threads, {});
  pending_.assign(num_threads, {});
  acquired_.clear();
  waited_.assign(num_threads, false);
  first_waiter_ = -1;
  clocks_.clear();
  barrier_clocks_.clear();
  async_fences_.assign(num_threads, 0);
}

void RaceChecker::end_block() {
  runner_ = nullptr;
  acquired_from_peers_.clear();
  ++time_;
}

void RaceChecker::block_met() {
  block_time_ = ++time_;
}

void RaceChecker::warp_met(int warp, uint32_t mask) {
  ++time_;
  Warp& state = warps_[static_cast<size_t>(warp)];
  if (mask == ~0U) {
    state.time = time_;
    return;
  }
  state.has_pairs = true;
  for (uint32_t a = mask; a != 0; a &= a - 1) {
    for (uint32_t b = mask; b != 0; b &= b - 1) {
      state.pair_times[static_cast<size_t>(std::countr_zero(a))][static_cast<size_t>(std::countr_zero(b))] = time_;
    }
  }
}

void RaceChecker::fence(int thread) {
  const auto index = static_cast<size_t>(thread);
  fences_[index] = {true, {release_of(thread), learnt_from_peers(thread)}};
  ++time_;
  for (const auto& [release, peers] : pending_[index]) {
    acquired_.push_back({release, thread, time_});
    if (peers != nullptr) {
      acquired_from_peers_.push_back({peers, thread, time_});
    }
  }
  pending_[index].clear();
  ++time_;
}

Release RaceChecker::release_of(int thread) const {
  return {run_, thread, time_, warps_[static_cast<size_t>(thread / kWarpLen)].time, block_time_};
}

void RaceChecker::atomic(int thread, const void* address) {
  auto& published = released_[address];
  auto& pending = pending_[static_cast<size_t>(thread)];
  pending.insert(pending.end(), published.begin(), published.end());
  if (const Fence& fence = fences_[static_cast<size_t>(thread)]; fence.any) {
    published.push_back(fence.published);
  }
}

namespace {

void join(std::vector<uint32_t>& into, const std::vector<uint32_t>& from) {
  into.resize(std::max(into.size(), from.size()), 0);
  for (size_t i = 0; i < from.size(); ++i) {
    into[i] = std::max(into[i], from[i]);
  }
}

}  // namespace

void RaceChecker::barrier_arrived(int thread, const void* barrier) {
  clocks_.resize(fences_.size());
  Clock& arriving = barrier_clocks_[barrier].arriving;
  arriving.resize(clocks_.size(), 0);
  join(arriving, clocks_[static_cast<size_t>(thread)]);
  arriving[static_cast<size_t>(thread)] = time_++;
}

void RaceChecker::barrier_completed(const void* barrier) {
  auto& [arriving, completed] = barrier_clocks_[barrier];
  completed = arriving;
}

void RaceChecker::barrier_waited(int thread, const void* barrier) {
  clocks_.resize(fences_.size());
  join(clocks_[static_cast<size_t>(thread)], barrier_clocks_[barrier].completed);
}

bool RaceChecker::barriers_order(const ShadowAccess& earlier, int later_thread) const {
  if (clocks_.empty() || clocks_[static_cast<size_t>(later_thread)].empty() || earlier.sharers == Sharers::kMany) {
    return false;
  }
  const Clock& clock = clocks_[static_cast<size_t>(later_thread)];
  if (earlier.sharers == Sharers::kOneThread) {
    return earlier.time <= clock[earlier.thread];
  }
  const auto first = clock.begin() + earlier.thread / kWarpLen * kWarpLen;
  return std::all_of(first, first + kWarpLen, [&](uint32_t time) { return earlier.time <= time; });
}

void RaceChecker::wait_for_earlier_grids(int thread) {
  waited_[static_cast<size_t>(thread)] = true;
  if (first_waiter_ < 0) {
    first_waiter_ = thread;
    first_wait_time_ = time_++;
  }
}

// Is what `thread` of the running block did at `time` ordered before what `later_thread` does now?
bool RaceChecker::in_block_before(int thread, uint32_t time, Sharers sharers, int later_thread) const {
  if (time < block_time_) {
    return true;
  }
  if (sharers == Sharers::kMany) {
    return false;
  }
  const bool is_one = sharers == Sharers::kOneThread;
  if (is_one && thread == later_thread) {
    return true;
  }
  if (thread / kWarpLen != later_thread / kWarpLen) {
    return false;
  }
  const Warp& warp = warps_[static_cast<size_t>(thread / kWarpLen)];
  return time < warp.time ||
         (is_one && warp.has_pairs &&
          time < warp.pair_times[static_cast<size_t>(thread % kWarpLen)][static_cast<size_t>(later_thread % kWarpLen)]);
}

// Is what stands in front of the launch ordered before what `thread` does now?
bool RaceChecker::has_waited(int thread) const {
  return !launches_.back().early || runner_ == nullptr || waited_[static_cast<size_t>(thread)] ||
         (first_waiter_ >= 0 && in_block_before(first_waiter_, first_wait_time_, Sharers::kOneThread, thread));
}

bool RaceChecker::launch_ordered(uint32_t earlier_launch, int later_thread) const {
  const Launch& earlier = launches_[earlier_launch];
  const Launch& later = launches_.back();
  const QueueClock& clock = has_waited(later_thread) ? later.clock : later.early_clock;
  const auto known = clock.find(earlier.stream);
  return known != clock.end() && known->second >= earlier.clock.at(earlier.stream);
}

bool RaceChecker::ordered(const ShadowAccess& earlier, const ShadowAccess& later) const {
  if (earlier.run == 0) {
    return true;
  }
  if (earlier.device != device_) {
    return peers_order(earlier, later.thread);
  }
  if (earlier.run == later.run) {
    return in_block_before(earlier.thread, earlier.time, earlier.sharers, later.thread) ||
           barriers_order(earlier, later.thread);
  }
  const uint32_t earlier_launch = runs_[earlier.run].launch;
  if (earlier_launch != static_cast<uint32_t>(launches_.size()) - 1) {
    return launch_ordered(earlier_launch, later.thread);
  }
  return std::any_of(acquired_.begin(), acquired_.end(), [&](const Acquired& known) {
    const Release& release = known.release;
    return release.run == earlier.run && in_block_before(known.thread, known.time, Sharers::kOneThread, later.thread) &&
           covers(release, earlier);
  });
}

void RaceChecker::check_cell(ShadowCell& cell, const ShadowAccess& now, const void* address, AccessKind kind) {
  const bool reads = kind == AccessKind::kRead || kind == AccessKind::kAsyncRead;
  const char* const what = reads ? "read" : kind == AccessKind::kAtomic ? "atomic" : "write";
  const auto check = [&](const ShadowAccess& earlier, const char* earlier_what) {
    if (!ordered(earlier, now)) {
      report(earlier, earlier_what, now, what, address);
    }
  };
  const bool finishes_copy = (kind == AccessKind::kWrite || kind == AccessKind::kAsyncWrite) && cell.write.is_pending &&
                             cell.write.thread == now.thread;
  if (cell.write.is_pending && !finishes_copy && same_run(cell.write, now)) {
    report(cell.write, "asynchronous copy (not waited for)", now, what, address);
  }
  if (kind == AccessKind::kAsyncRead && same_run(cell.write, now) && !cell.write.is_async &&
      async_fences_[cell.write.thread] < cell.write.time) {
    report(cell.write, "write (without a fence for asynchronous readers)", now, "asynchronous read", address);
  }
  check(cell.write, "write");
  if (kind != AccessKind::kAtomic) {
    check(cell.atomic, "atomic");
  }
  if (!reads) {
    check(cell.read, "read");
    for (const ShadowAccess& other : cell.other_reads) {
      check(other, "read");
    }
    cell.other_reads.clear();
  }
  if (!reads && kind != AccessKind::kAtomic) {
    cell.write = now;
    return;
  }
  // Several accesses that need no order among each other: the last one stands for all.
  ShadowAccess& last = reads ? cell.read : cell.atomic;
  auto sharers = Sharers::kOneThread;
  if (last.device != now.device) {
    if (reads && !ordered(last, now)) {
      std::erase_if(cell.other_reads, [&](const ShadowAccess& other) { return other.device == last.device; });
      cell.other_reads.push_back(last);
    }
  } else if (!ordered(last, now)) {
    const bool in_warp = last.run == now.run && last.thread / kWarpLen == now.thread / kWarpLen;
    sharers = in_warp && last.sharers != Sharers::kMany ? Sharers::kOneWarp : Sharers::kMany;
  }
  last = now;
  last.sharers = sharers;
}

bool RaceChecker::watches(const void* address) const {
  return (runner_ != nullptr && runner_->reserves(address)) || memory_of(address) != nullptr;
}

void RaceChecker::access(int thread, const void* address, int64_t num_bytes, AccessKind kind, Origin origin) {
  const bool is_write = kind != AccessKind::kRead && kind != AccessKind::kAsyncRead;
  const DeviceMemory* const memory = memory_of(address);
  const bool is_device = memory != nullptr;
  if (is_device &&
      !(memory == &memory_ ? memory->holds(address, num_bytes) : memory->holds_for_peer(address, num_bytes))) {
    std::string what = fmt::format("{}: {} of {} bytes at {}",
                                   source_of(origin),
                                   is_write ? "write" : "read",
                                   num_bytes,
                                   memory->describe(address));
    runner_->fail(FaultKind::kOutOfBounds, std::move(what), kUnknownSite);
  }
  if (!is_device) {
    const int64_t offset = static_cast<const std::byte*>(address) - runner_->shared_memory();
    if (offset < 0 || offset + num_bytes > runner_->shared_bytes()) {
      std::string what =
          fmt::format("{}: {} of {} bytes at byte {} of shared memory, but the launch asked for {} bytes",
                      source_of(origin),
                      is_write ? "write" : "read",
                      num_bytes,
                      offset,
                      runner_->shared_bytes());
      runner_->fail(FaultKind::kSharedOverrun, std::move(what), kUnknownSite);
    }
  }
  const ShadowAccess now{.run = run_,
                         .time = time_,
                         .origin = origin,
                         .thread = static_cast<uint16_t>(thread),
                         .device = device_,
                         .is_pending = kind == AccessKind::kPendingWrite,
                         .is_async = kind == AccessKind::kAsyncWrite};
  if (!is_device && !finds_races_) {
    return;
  }
  const auto lock = lock_peers();
  ShadowMemory& shadow = peers_ != nullptr ? peers_->shadow : shadow_;
  const uint64_t launch = uint64_t{device_} << 32 | launches_.size();
  auto begin = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = begin + static_cast<uintptr_t>(num_bytes);
  if (is_device) {
    (is_write ? counts_.bytes_stored : counts_.bytes_loaded) += num_bytes;
  }
  while (begin < end) {
    const uintptr_t page_start = begin & ~(kShadowPageBytes - 1);
    const uintptr_t part_end = std::min(end, page_start + kShadowPageBytes);
    ShadowPage& page = shadow.page_of(page_start);
    if (finds_races_) {
      page.for_each(begin, part_end - begin, [&](ShadowCell& cell, uintptr_t at) {
        if (!is_device) {  // an earlier block had shared memory of its own
          cell.write = cell.write.run == run_ ? cell.write : ShadowAccess{};
          cell.read = cell.read.run == run_ ? cell.read : ShadowAccess{};
          cell.atomic = cell.atomic.run == run_ ? cell.atomic : ShadowAccess{};
        }
        check_cell(cell, now, reinterpret_cast<const void*>(at), kind);
      });
    }
    if (is_device) {
      if (page.counted_launch != launch) {
        page.counted_launch = launch;
        page.read_sectors = {};
        page.written_sectors = {};
      }
      auto& sectors = is_write ? page.written_sectors : page.read_sectors;
      int64_t& count = is_write ? counts_.sectors_written : counts_.sectors_read;
      for (uintptr_t sector = (begin - page_start) / kSectorBytes; sector <= (part_end - 1 - page_start) / kSectorBytes;
           ++sector) {
        uint64_t& bits = sectors[sector / 64];
        const uint64_t bit = uint64_t{1} << sector % 64;
        count += (bits & bit) == 0 ? 1 : 0;
        bits |= bit;
      }
    }
    begin = part_end;
  }
}

void RaceChecker::host_access(const void* address, int64_t num_bytes, bool is_write) {
  if (!memory_.reserves(address) || num_bytes == 0) {
    return;
  }
  {
    const auto lock = lock_peers();
    runs_.push_back({static_cast<uint32_t>(launches_.size()) - 1, {}});
    run_ = static_cast<uint32_t>(runs_.size()) - 1;
  }
  access(0, address, num_bytes, is_write ? AccessKind::kWrite : AccessKind::kRead, origin_of(Site{"host copy", 0}));
}

std::string RaceChecker::source_of(Origin origin) const {
  if ((origin & kIsSite) != 0) {
    const Site& site = sites_[origin & ~kIsSite];
    return site.line == 0 ? site.file : fmt::format("{}:{}", site.file, site.line);
  }
  return source_line(image_base() + origin);
}

std::string RaceChecker::describe(const ShadowAccess& access, const char* what) const {
  const RaceChecker& checker = access.device == device_ ? *this : *peers_->checker(access.device);
  const Run& run = checker.runs_[access.run];
  return fmt::format("{} by kernel {}{}, block ({}, {}, {}), thread {} at {}",
                     what,
                     checker.launches_[run.launch].name,
                     peers_ != nullptr ? fmt::format(" of device {}", access.device) : "",
                     run.block.x,
                     run.block.y,
                     run.block.z,
                     access.thread,
                     checker.source_of(access.origin));
}

void RaceChecker::report(const ShadowAccess& earlier,
                         const char* earlier_what,
                         const ShadowAccess& later,
                         const char* later_what,
                         const void* address) {
  if (races_.size() >= kMaxReported || !reported_.insert({earlier.origin, later.origin}).second) {
    return;
  }
  const DeviceMemory* const memory = memory_of(address);
  const std::string where =
      memory != nullptr
          ? memory->describe(address)
          : fmt::format("byte {} of shared memory", static_cast<const std::byte*>(address) - runner_->shared_memory());
  races_.push_back(fmt::format("race on {}: {}; and {}; nothing orders them",
                               where,
                               describe(earlier, earlier_what),
                               describe(later, later_what)));
}

}  // namespace gpu::emulation
