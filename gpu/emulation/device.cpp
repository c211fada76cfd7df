#include "gpu/emulation/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "gpu/emulation/access_faults.hpp"
#include "gpu/emulation/peer_group.hpp"
#include "gpu/emulation/race_checker.hpp"
#include "model/check.hpp"

namespace gpu::emulation {
namespace {

constexpr unsigned kMaxGridY = 65535;

void check_launch(const GridLaunch& launch) {
  const auto refuse = [&](const std::string& why) {
    throw Fault(FaultKind::kBadLaunch, fmt::format("kernel {}: {}", launch.name, why));
  };
  const int64_t num_threads = launch.block.count();
  if (num_threads < 1 || num_threads > kMaxThreads) {
    refuse(fmt::format("{} threads in a block; 1 to {} are possible", num_threads, kMaxThreads));
  }
  if (num_threads % kWarpLen != 0) {
    refuse(fmt::format("{} threads in a block are no whole number of warps", num_threads));
  }
  if (launch.grid.count() < 1 || launch.grid.x > 0x7FFFFFFFU || launch.grid.y > kMaxGridY ||
      launch.grid.z > kMaxGridY) {
    refuse(fmt::format("a grid of {} x {} x {} blocks", launch.grid.x, launch.grid.y, launch.grid.z));
  }
  if (launch.shared_bytes < 0 || launch.shared_bytes > kMaxSharedBytes) {
    refuse(fmt::format("{} bytes of shared memory; a block can have {}", launch.shared_bytes, kMaxSharedBytes));
  }
}

Index3 block_at(Index3 grid, int64_t i) {
  return {static_cast<unsigned>(i % grid.x),
          static_cast<unsigned>(i / grid.x % grid.y),
          static_cast<unsigned>(i / (int64_t{grid.x} * grid.y))};
}

}  // namespace

Device::Device(const Options& options)
    : options_(options), memory_(options.memory_bytes), random_state_(options.order.seed) {
  CHECK(options.num_os_threads >= 1);
  checker_ = std::make_unique<RaceChecker>(memory_, options_.finds_races, options_.peers);
  for (int i = 0; i < options.num_os_threads; ++i) {
    runners_.push_back(std::make_unique<BlockRunner>(options, options.order.seed + static_cast<uint64_t>(i), nullptr));
  }
  // The one that runs kernels compiled for checking.
  runners_.push_back(std::make_unique<BlockRunner>(options, options.order.seed, checker_.get()));
  watch_access_faults(memory_);
}

Device::~Device() {
  unwatch_access_faults(memory_);
}

std::byte* Device::allocate(int64_t num_bytes, std::string_view what) {
  refuse_during_capture("allocate memory");
  return memory_.allocate(num_bytes, what);
}

void Device::release(std::byte* start) {
  refuse_during_capture("release memory");
  memory_.release(start);
}

void Device::refuse_during_capture(const char* what) const {
  if (capture_ != nullptr) {
    throw Fault(FaultKind::kBadStream, fmt::format("cannot {} while a graph is captured", what));
  }
}

Stream Device::create_stream() {
  queues_.emplace_back();
  return {this, static_cast<int>(queues_.size()) - 1};
}

Device::Queue& Device::queue_of(Stream stream) {
  CHECK(stream.device == this);
  return queues_.at(static_cast<size_t>(stream.id));
}

void Device::append(Stream stream, std::function<void(const QueueClock&)> run) {
  Queue& queue = queue_of(stream);
  if (queue.captures) {
    capture_->nodes.push_back({std::move(run), std::exchange(queue.captured_last, {}), stream.id});
    queue.captured_last = {capture_->nodes.size() - 1};
    return;
  }
  join(queue.clock, host_clock_);
  queue.clock[stream.id] = ++queue.num_enqueued;
  queue.waiting.push_back({std::move(run), queue.clock});
}

void Device::enqueue(Stream stream, GridLaunch launch, bool checked, bool early) {
  check_launch(launch);
  append(stream, [this, launch = std::move(launch), checked, early, id = stream.id](const QueueClock& clock) {
    run_grid(launch, checked, early, clock, id);
  });
}

void Device::enqueue_copy(Stream stream, void* to, const void* from, int64_t num_bytes) {
  for (const void* end : {static_cast<const void*>(to), from}) {
    if (memory_.reserves(end) && !memory_.holds(end, num_bytes)) {
      throw Fault(FaultKind::kOutOfBounds, fmt::format("copy of {} bytes at {}", num_bytes, memory_.describe(end)));
    }
  }
  append(stream, [=, this, id = stream.id](const QueueClock& clock) {
    checker_->begin_launch("copy", id, clock, false);
    checker_->host_access(from, num_bytes, false);
    checker_->host_access(to, num_bytes, true);
    std::memcpy(to, from, static_cast<size_t>(num_bytes));
    checker_->end_launch();
  });
}

void Device::enqueue_fill(Stream stream, void* to, std::byte value, int64_t num_bytes) {
  if (!memory_.holds(to, num_bytes)) {
    throw Fault(FaultKind::kOutOfBounds, fmt::format("fill of {} bytes at {}", num_bytes, memory_.describe(to)));
  }
  append(stream, [=, this, id = stream.id](const QueueClock& clock) {
    checker_->begin_launch("fill", id, clock, false);
    checker_->host_access(to, num_bytes, true);
    std::memset(to, static_cast<int>(value), static_cast<size_t>(num_bytes));
    checker_->end_launch();
  });
}

void Device::enqueue_host(Stream stream, std::function<void()> work) {
  append(stream, [work = std::move(work)](const QueueClock&) { work(); });
}

Event Device::record(Stream stream) {
  const Queue& queue = queue_of(stream);
  return {queue.clock, queue.captures ? queue.captured_last : std::vector<size_t>{}};
}

void Device::wait(Stream stream, const Event& event) {
  Queue& queue = queue_of(stream);
  if (!event.captured.empty()) {
    CHECK(capture_ != nullptr);
    queue.captures = true;
    queue.captured_last.insert(queue.captured_last.end(), event.captured.begin(), event.captured.end());
    return;
  }
  join(queue.clock, event.clock);
}

bool Device::can_run(const Operation& operation, int stream) const {
  return std::all_of(operation.clock.begin(), operation.clock.end(), [&](const auto& entry) {
    const auto& [other, count] = entry;
    return other == kMeetings || queues_[static_cast<size_t>(other)].num_done >= (other == stream ? count - 1 : count);
  });
}

// One operation of one stream, chosen by the order among those that nothing holds back.
void Device::run_one() {
  std::vector<int> ready;
  for (size_t i = 0; i < queues_.size(); ++i) {
    const auto& waiting = queues_[i].waiting;
    if (!waiting.empty() && can_run(waiting.front(), static_cast<int>(i))) {
      ready.push_back(static_cast<int>(i));
    }
  }
  CHECK(!ready.empty());  // an event is recorded before it can be waited for, so there are no cycles
  int chosen = ready.front();
  if (options_.order.kind == OrderKind::kReverse) {
    chosen = ready.back();
  } else if (options_.order.kind == OrderKind::kRandom) {
    random_state_ = random_state_ * 6364136223846793005U + 1442695040888963407U;
    chosen = ready[(random_state_ >> 33) % ready.size()];
  }
  Queue& queue = queues_[static_cast<size_t>(chosen)];
  const Operation operation = std::move(queue.waiting.front());
  queue.waiting.pop_front();
  ++queue.num_done;
  try {
    operation.run(operation.clock);
  } catch (const std::exception& failure) {
    if (options_.peers != nullptr) {
      options_.peers->fail(failure.what());
    }
    // As on a device: after a fault nothing that was queued is done.
    for (Queue& each : queues_) {
      each.num_done += static_cast<int64_t>(each.waiting.size());
      each.waiting.clear();
    }
    throw;
  }
}

void Device::synchronize(Stream stream) {
  refuse_during_capture("wait for a stream");
  Queue& queue = queue_of(stream);
  while (!queue.waiting.empty()) {
    run_one();
  }
  join(host_clock_, queue.clock);
}

void Device::synchronize() {
  for (size_t i = 0; i < queues_.size(); ++i) {
    synchronize(Stream{this, static_cast<int>(i)});
  }
}

void Device::meet_peers() {
  refuse_during_capture("wait for peers");
  CHECK(options_.peers != nullptr);
  host_clock_[kMeetings] = checker_->meet_peers(host_clock_, options_.peer_timeout_s);
}

void Device::begin_capture(Stream stream) {
  refuse_during_capture("begin another capture");
  capture_ = std::make_unique<Graph>();
  capture_->origin = stream.id;
  queue_of(stream).captures = true;
}

Graph Device::end_capture(Stream stream) {
  if (capture_ == nullptr || capture_->origin != stream.id) {
    throw Fault(FaultKind::kBadStream, "end of a capture that did not begin on this stream");
  }
  Graph graph = std::move(*std::exchange(capture_, nullptr));
  std::vector<bool> followed(graph.nodes.size(), false);
  for (const Graph::Node& node : graph.nodes) {
    for (const size_t before : node.after) {
      followed[before] = true;
    }
  }
  for (const size_t last : queue_of(stream).captured_last) {
    followed[last] = true;
  }
  const bool joined = std::all_of(followed.begin(), followed.end(), [](bool f) { return f; });
  for (Queue& queue : queues_) {
    queue.captures = false;
    queue.captured_last.clear();
  }
  if (!joined) {
    throw Fault(FaultKind::kBadStream, "a captured stream was not joined to the stream that the capture began on");
  }
  return graph;
}

// Each node becomes an operation of the stream it was captured on; the origin's place is taken by the stream of the launch.
void Device::launch(Stream stream, const Graph& graph) {
  refuse_during_capture("launch a graph");
  const auto stream_of = [&](const Graph::Node& node) {
    return Stream{this, node.stream == graph.origin ? stream.id : node.stream};
  };
  const QueueClock start = queue_of(stream).clock;
  std::vector<QueueClock> clocks;
  for (const Graph::Node& node : graph.nodes) {
    Queue& queue = queue_of(stream_of(node));
    join(queue.clock, start);
    for (const size_t before : node.after) {
      join(queue.clock, clocks[before]);
    }
    append(stream_of(node), node.run);
    clocks.push_back(queue.clock);
  }
  for (const QueueClock& clock : clocks) {
    join(queue_of(stream).clock, clock);
  }
}

void Device::run_grid(const GridLaunch& launch, bool checked, bool early, const QueueClock& clock, int stream) {
  const int64_t num_blocks = launch.grid.count();
  KernelCounters& counters = counters_[launch.name];
  ++counters.num_launches;
  std::vector<int64_t> random_blocks;
  if (options_.order.kind == OrderKind::kRandom) {
    random_blocks.resize(static_cast<size_t>(num_blocks));
    std::iota(random_blocks.begin(), random_blocks.end(), 0);
    for (size_t i = random_blocks.size() - 1; i > 0; --i) {
      std::swap(random_blocks[i], random_blocks[runners_.back()->random() % (i + 1)]);
    }
  }
  const auto block_id = [&](int64_t i) {
    switch (options_.order.kind) {
      case OrderKind::kForward: return i;
      case OrderKind::kReverse: return num_blocks - 1 - i;
      case OrderKind::kRandom: return random_blocks[static_cast<size_t>(i)];
    }
    return i;
  };
  if (checked) {
    checker_->begin_launch(launch.name, stream, clock, early);
    BlockRunner& runner = *runners_.back();
    try {
      for (int64_t i = 0; i < num_blocks; ++i) {
        runner.run(launch, block_at(launch.grid, block_id(i)));
      }
    } catch (const Fault& fault) {
      checker_->throw_races(fault.what());  // the likelier cause, named first
      throw;
    }
    counters.tensor_flops += std::exchange(runner.flops, 0);
    const AccessCounts counts = checker_->end_launch();
    counters.sectors_read += counts.sectors_read;
    counters.sectors_written += counts.sectors_written;
    counters.bytes_loaded += counts.bytes_loaded;
    counters.bytes_stored += counts.bytes_stored;
    return;
  }
  const int num_threads = static_cast<int>(std::min<int64_t>(options_.num_os_threads, num_blocks));
  std::atomic<int64_t> next_block = 0;
  std::mutex mutex;
  std::exception_ptr first_fault;
  const auto work = [&](BlockRunner& runner) {
    try {
      for (int64_t i = next_block++; i < num_blocks; i = next_block++) {
        runner.run(launch, block_at(launch.grid, block_id(i)));
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      first_fault = first_fault ? first_fault : std::current_exception();
      next_block = num_blocks;
    }
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < num_threads; ++i) {
    helpers.emplace_back([&, i] { work(*runners_[static_cast<size_t>(i)]); });
  }
  work(*runners_.front());
  for (auto& helper : helpers) {
    helper.join();
  }
  for (const auto& runner : runners_) {
    counters.tensor_flops += std::exchange(runner->flops, 0);
  }
  if (first_fault) {
    std::rethrow_exception(first_fault);
  }
}

}  // namespace gpu::emulation
