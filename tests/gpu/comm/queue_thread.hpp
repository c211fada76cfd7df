// A queue whose work is done by a thread of its own, as a device's stream does it.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "gpu/comm/communicator.hpp"

namespace gpu::comm {

class QueueThread {
 public:
  QueueThread() : thread_([this] { work(); }) {}
  ~QueueThread() {
    append(nullptr);
    thread_.join();
  }
  QueueThread(const QueueThread&) = delete;
  QueueThread& operator=(const QueueThread&) = delete;

  Queue queue() {
    return [this](std::function<void()> work) { append(std::move(work)); };
  }

  // Returns when all work handed in is done; throws the first error of it.
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_.empty() && !is_busy_; });
    if (error_) {
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
  }

 private:
  void append(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
    changed_.notify_all();
  }

  // Until it comes to work that is null.
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !waiting_.empty(); });
      const auto next = std::move(waiting_.front());
      waiting_.pop_front();
      if (next == nullptr) {
        return;
      }
      is_busy_ = true;
      lock.unlock();
      try {
        next();
      } catch (...) {
        const std::lock_guard error_lock(mutex_);
        error_ = error_ ? error_ : std::current_exception();
      }
      lock.lock();
      is_busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::exception_ptr error_;
  bool is_busy_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace gpu::comm
