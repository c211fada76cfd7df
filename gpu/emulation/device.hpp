// An emulated device: memory, streams, events, graphs, counters. Work is queued as on real hardware and done when somebody
// synchronises; among operations that nothing orders, the options' order decides, so that a missing event is found.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/emulation/block_runner.hpp"
#include "gpu/emulation/memory.hpp"
#include "gpu/emulation/options.hpp"
#include "gpu/emulation/peer_clock.hpp"

namespace gpu::emulation {

class Device;
class RaceChecker;

struct Stream {
  Device* device = nullptr;
  int id = 0;
};

struct Event {
  QueueClock clock;
  std::vector<size_t> captured;  // nodes, when recorded during a capture
};

// What one kernel did in all its launches so far. The sectors need kernels compiled for checking: 0 otherwise.
struct KernelCounters {
  int64_t num_launches = 0;
  int64_t tensor_flops = 0;  // by mma operations, two for a multiply-add
  int64_t sectors_read = 0;  // 32-byte sectors of device memory, each counted once in a launch
  int64_t sectors_written = 0;
  int64_t bytes_loaded = 0;  // as issued by the threads
  int64_t bytes_stored = 0;
};

// A recorded sequence of operations with their order, to be launched again and again.
struct Graph {
  struct Node {
    std::function<void(const QueueClock&)> run;
    std::vector<size_t> after;
    int stream = 0;
  };
  std::vector<Node> nodes;
  int origin = 0;  // the stream that the capture began on
};

class Device {
 public:
  explicit Device(const Options& options = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // --- Memory ---
  std::byte* allocate(int64_t num_bytes, std::string_view what);
  void release(std::byte* start);
  [[nodiscard]] const DeviceMemory& memory() const { return memory_; }

  // --- Queues ---
  Stream create_stream();
  // Checks the launch as a driver does: grid and block extents, shared memory. `early`: programmatic dependent launch, the grid may
  // start before the operation in front of it is done, and has to call wait_for_earlier_grids().
  void enqueue(Stream stream, GridLaunch launch, bool checked, bool early);
  void enqueue_copy(Stream stream, void* to, const void* from, int64_t num_bytes);
  void enqueue_fill(Stream stream, void* to, std::byte value, int64_t num_bytes);
  // Work of the host among the stream's. What it reads and writes is not checked.
  void enqueue_host(Stream stream, std::function<void()> work);
  Event record(Stream stream);
  void wait(Stream stream, const Event& event);
  // Does what is queued until the stream is empty. Throws the first Fault; what is queued behind it is dropped.
  void synchronize(Stream stream);
  void synchronize();
  // Waits for the hosts of all devices of the group: what each of them has synchronised is done before what any enqueues afterwards.
  void meet_peers();

  // --- Graphs ---
  void begin_capture(Stream stream);
  Graph end_capture(Stream stream);
  void launch(Stream stream, const Graph& graph);

  [[nodiscard]] const std::map<std::string, KernelCounters>& counters() const { return counters_; }
  void reset_counters() { counters_.clear(); }
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  struct Operation {
    std::function<void(const QueueClock&)> run;
    QueueClock clock;  // everything ordered before it, itself included
  };
  struct Queue {
    std::deque<Operation> waiting;
    int64_t num_enqueued = 0;
    int64_t num_done = 0;
    QueueClock clock;  // of what is enqueued next, without itself
    bool captures = false;
    std::vector<size_t> captured_last;  // nodes that the next captured operation follows
  };

  Queue& queue_of(Stream stream);
  void append(Stream stream, std::function<void(const QueueClock&)> run);
  [[nodiscard]] bool can_run(const Operation& operation, int stream) const;
  void run_one();
  void run_grid(const GridLaunch& launch, bool checked, bool early, const QueueClock& clock, int stream);
  void refuse_during_capture(const char* what) const;

  Options options_;
  DeviceMemory memory_;
  std::unique_ptr<RaceChecker> checker_;
  std::vector<std::unique_ptr<BlockRunner>> runners_;  // one an OS thread
  std::vector<Queue> queues_;
  QueueClock host_clock_;  // what the host has waited for
  std::unique_ptr<Graph> capture_;
  std::map<std::string, KernelCounters> counters_;
  uint64_t random_state_;
};

}  // namespace gpu::emulation
