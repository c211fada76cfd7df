// A pool of threads that wait for the next loop: starting a thread costs as much as a small product.
#include "reference/parallel.hpp"

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace reference {
namespace {

// Waiting is busy for about this long, since loops follow one another closely; then the thread sleeps.
constexpr int kNumSpins = 4000;
// Ranges for each thread, so that one whose core is taken away does not keep the others waiting.
constexpr int64_t kRangesPerThread = 4;

void wait_while_equal(const std::atomic<int64_t>& value, int64_t old) {
  for (int spin = 0; spin < kNumSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) {
      return;
    }
  }
  while (value.load(std::memory_order_acquire) == old) {
    value.wait(old, std::memory_order_acquire);
  }
}

// True in a thread that is working on a loop.
thread_local bool inside_loop = false;

class InsideLoop {
 public:
  InsideLoop() { inside_loop = true; }
  InsideLoop(const InsideLoop&) = delete;
  InsideLoop& operator=(const InsideLoop&) = delete;
  ~InsideLoop() { inside_loop = false; }
};

// One loop: ranges are handed out to whoever asks.
class Loop {
 public:
  Loop(int64_t count, int64_t num_ranges, const std::function<void(int64_t, int64_t)>& body)
      : count_(count), num_ranges_(num_ranges), body_(body) {}

  void work() {
    try {
      for (int64_t r = next_.fetch_add(1); r < num_ranges_; r = next_.fetch_add(1)) {
        body_(count_ * r / num_ranges_, count_ * (r + 1) / num_ranges_);
      }
    } catch (...) {
      const std::scoped_lock lock(failure_mutex_);
      failure_ = failure_ ? failure_ : std::current_exception();
    }
  }

  void rethrow() const {
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  int64_t count_;
  int64_t num_ranges_;
  const std::function<void(int64_t, int64_t)>& body_;
  std::atomic<int64_t> next_{0};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

// A thread that works on the loops it is offered. It may come too late for one: nobody waits for a thread that has not begun, since on
// a busy machine that can take longer than the loop.
class Worker {
 public:
  Worker() : thread_([this] { serve(); }) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    stop_ = true;
    wake();
  }

  void offer(Loop* loop) {
    offered_ = loop;
    wake();
  }
  // Takes the offer back, or waits until the thread is done with it.
  void settle() {
    if (offered_.exchange(nullptr) == nullptr) {
      ++num_taken_;
      wait_while_equal(num_done_, num_taken_ - 1);
    }
  }

 private:
  void wake() {
    num_calls_.fetch_add(1);
    num_calls_.notify_one();
  }

  void serve() {
    for (int64_t turn = 0; !stop_; ++turn) {
      wait_while_equal(num_calls_, turn);
      if (Loop* loop = offered_.exchange(nullptr); loop != nullptr) {
        const InsideLoop mark;
        loop->work();
        num_done_.fetch_add(1);
        num_done_.notify_one();
      }
    }
  }

  std::atomic<Loop*> offered_{nullptr};
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> num_calls_{0};
  std::atomic<int64_t> num_done_{0};
  int64_t num_taken_ = 0;  // by the thread, as the owner knows
  std::jthread thread_;    // last: it uses the others
};

struct Pool {
  std::mutex in_use;
  std::vector<std::unique_ptr<Worker>> workers;
};

Pool& pool() {
  static Pool the_pool;
  return the_pool;
}

}  // namespace

void share_ranges(int64_t count, int num_threads, const std::function<void(int64_t, int64_t)>& body) {
  const int64_t num_workers = std::clamp<int64_t>(num_threads, 1, std::max<int64_t>(count, 1));
  std::unique_lock lock(pool().in_use, std::defer_lock);
  if (num_workers == 1 || inside_loop || !lock.try_lock()) {
    body(0, count);
    return;
  }
  const InsideLoop mark;
  auto& workers = pool().workers;
  while (static_cast<int64_t>(workers.size()) < num_workers - 1) {
    workers.push_back(std::make_unique<Worker>());
  }
  Loop loop(count, std::min(count, num_workers * kRangesPerThread), body);
  for (int64_t w = 0; w < num_workers - 1; ++w) {
    workers[static_cast<size_t>(w)]->offer(&loop);
  }
  loop.work();
  for (int64_t w = 0; w < num_workers - 1; ++w) {
    workers[static_cast<size_t>(w)]->settle();
  }
  loop.rethrow();
}

}  // namespace reference
