// Finds pairs of accesses that nothing orders, in shared and in device memory, whatever order they happened to run in. Kernels compiled
// for checking report each access to it (access_hooks.cpp); the runner reports what orders them.
//
// What orders: sync_threads the accesses of a block; sync_warp those of its lanes (shuffles do not); a fence before and after atomics on
// one address those of two blocks; the clocks of the queues those of two launches; a release store and the acquire load of its value
// those of two devices. Kernels compiled for checking run one block at a time on one OS thread, so a device alone needs no lock; those
// of a group keep one while they look at what they share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpu/emulation/device.hpp"
#include "gpu/emulation/peer_clock.hpp"
#include "gpu/emulation/shadow.hpp"
#include "gpu/emulation/site.hpp"

namespace gpu::emulation {

class PeerGroup;

// kPendingWrite: by an asynchronous copy, until it is waited for. kAsync...: by the units that copy and multiply tiles, which see what
// threads wrote only behind a fence.
enum class AccessKind { kRead, kWrite, kAtomic, kPendingWrite, kAsyncRead, kAsyncWrite };

// Where an access came from: a program counter, or a Site that the checker keeps.
using Origin = uint32_t;

// In clocks, the stream whose operations are the meetings of the hosts of a group.
inline constexpr int kMeetings = -1;

struct AccessCounts {
  int64_t sectors_read = 0;
  int64_t sectors_written = 0;
  int64_t bytes_loaded = 0;
  int64_t bytes_stored = 0;
};

class RaceChecker {
 public:
  // `peers` may be null: a device alone.
  RaceChecker(const DeviceMemory& memory, bool finds_races, std::shared_ptr<PeerGroup> peers);
  ~RaceChecker();
  RaceChecker(const RaceChecker&) = delete;
  RaceChecker& operator=(const RaceChecker&) = delete;

  // --- Called by the device and the runner ---
  void begin_launch(const std::string& name, int stream, const QueueClock& clock, bool early);
  // Throws Fault kRace when the launch had races; the first line names the first one.
  AccessCounts end_launch();
  // Throws it if there were races so far; `what_came_of_them` is added.
  void throw_races(const std::string& what_came_of_them) const;
  void begin_block(BlockRunner& runner, Index3 block);
  void end_block();
  void block_met();
  void warp_met(int warp, uint32_t mask);
  // An access by the host's copies.
  void host_access(const void* address, int64_t num_bytes, bool is_write);
  // Waits for the hosts of the group; returns how many meetings there have been. `host_clock`: what this host has waited for.
  int64_t meet_peers(const QueueClock& host_clock, double timeout_s);

  // --- Called on behalf of a thread of the running block ---
  void access(int thread, const void* address, int64_t num_bytes, AccessKind kind, Origin origin);
  void fence(int thread);
  // What an atomic operation on this address publishes and learns. The access itself is reported besides.
  void atomic(int thread, const void* address);
  // A release store and an acquire load of a word between devices. The accesses themselves are reported besides. Who waits for an epoch
  // learns what the store of that epoch published and no more, whatever value is there by now: that it is later was luck.
  void release(int thread, uint32_t* to, uint32_t value);
  uint32_t acquire(int thread, const uint32_t* from, std::optional<uint32_t> awaited_epoch);
  void wait_for_earlier_grids(int thread);
  // Barriers that count arrivals: who waits for a phase learns what those who arrived in it have done or learnt.
  void barrier_arrived(int thread, const void* barrier);
  void barrier_completed(const void* barrier);
  void barrier_waited(int thread, const void* barrier);
  // What the thread wrote is seen by the units that copy and multiply tiles.
  void async_fence(int thread) { async_fences_[static_cast<size_t>(thread)] = time_++; }

  // Shared memory of the running block, or memory of this device or of a peer?
  [[nodiscard]] bool watches(const void* address) const;
  Origin origin_of(Site site);
  static Origin origin_of(const void* program_counter);

 private:
  struct Launch {
    std::string name;
    int stream = 0;
    QueueClock clock;
    QueueClock early_clock;  // before wait_for_earlier_grids
    bool early = false;
  };
  struct Run {  // of one block, or of a copy
    uint32_t launch = 0;
    Index3 block;
  };
  struct Published {  // by an atomic, to other blocks
    Release release;
    SharedPeerClock peers;  // what the block had learnt from peers
  };
  struct Acquired {
    Release release;
    int thread = 0;  // who learnt of it
    uint32_t time = 0;
  };
  struct Fence {
    bool any = false;
    Published published;
  };
  struct Warp {
    uint32_t time = 0;  // accesses before it are ordered for all lanes
    std::array<std::array<uint32_t, kWarpLen>, kWarpLen> pair_times = {};  // of meetings of some lanes
    bool has_pairs = false;
  };

  // Held by nobody for a device alone.
  [[nodiscard]] std::unique_lock<std::mutex> lock_peers() const;
  [[nodiscard]] SharedPeerClock peers_at(const QueueClock& clock) const;
  [[nodiscard]] bool peers_order(const ShadowAccess& earlier, int later_thread) const;
  [[nodiscard]] bool is_known(const SharedPeerClock& clock, const ShadowAccess& earlier) const;
  [[nodiscard]] SharedPeerClock learnt_from_peers(int thread) const;
  [[nodiscard]] bool has_waited(int thread) const;
  [[nodiscard]] Release release_of(int thread) const;
  [[nodiscard]] const DeviceMemory* memory_of(const void* address) const;
  void check_cell(ShadowCell& cell, const ShadowAccess& now, const void* address, AccessKind kind);
  [[nodiscard]] bool in_block_before(int thread, uint32_t time, Sharers sharers, int later_thread) const;
  [[nodiscard]] bool ordered(const ShadowAccess& earlier, const ShadowAccess& later) const;
  [[nodiscard]] bool launch_ordered(uint32_t earlier_launch, int later_thread) const;
  void report(const ShadowAccess& earlier,
              const char* earlier_what,
              const ShadowAccess& later,
              const char* later_what,
              const void* address);
  [[nodiscard]] std::string describe(const ShadowAccess& access, const char* what) const;
  [[nodiscard]] std::string source_of(Origin origin) const;

  const DeviceMemory& memory_;
  bool finds_races_;
  std::shared_ptr<PeerGroup> peers_;
  uint8_t device_ = 0;   // in the group
  ShadowMemory shadow_;  // of a device alone; a group has one for all
  std::vector<Launch> launches_;
  std::vector<Run> runs_ = std::vector<Run>(1);
  std::vector<Site> sites_;

  BlockRunner* runner_ = nullptr;
  uint32_t time_ = 1;  // grows with each meeting and fence, over all blocks and launches
  uint32_t run_ = 0;
  uint32_t block_time_ = 0;  // accesses of the run before it are ordered for the whole block
  std::vector<Warp> warps_;
  std::vector<Fence> fences_;                    // [thread]
  std::vector<std::vector<Published>> pending_;  // [thread] seen by atomics, not fenced yet
  std::vector<Acquired> acquired_;
  std::vector<bool> waited_;  // [thread] wait_for_earlier_grids
  // By thread of the block: up to when another thread's accesses are ordered before its own. Empty until a barrier is used.
  using Clock = std::vector<uint32_t>;
  struct BarrierClocks {
    Clock arriving;
    Clock completed;
  };
  [[nodiscard]] bool barriers_order(const ShadowAccess& earlier, int later_thread) const;
  std::vector<Clock> clocks_;
  std::unordered_map<const void*, BarrierClocks> barrier_clocks_;
  std::vector<uint32_t> async_fences_;  // [thread] time of the last one
  int first_waiter_ = -1;
  uint32_t first_wait_time_ = 0;
  std::unordered_map<const void*, std::vector<Published>> released_;  // by address, in this launch

  // What is known of the peers behind an operation: [stream][its place there], where it is more than behind the one in front.
  std::map<int, std::map<int64_t, SharedPeerClock>> peers_behind_;
  SharedPeerClock peers_at_launch_;
  SharedPeerClock peers_at_early_launch_;     // before wait_for_earlier_grids
  SharedPeerClock peers_acquired_in_launch_;  // by its blocks so far
  struct AcquiredFromPeer {
    SharedPeerClock clock;
    int thread = 0;
    uint32_t time = 0;
  };
  std::vector<AcquiredFromPeer> acquired_from_peers_;  // by the running block

  AccessCounts counts_;
  std::vector<std::string> races_;
  std::set<std::pair<Origin, Origin>> reported_;
};

}  // namespace gpu::emulation
