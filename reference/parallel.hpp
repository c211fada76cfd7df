// A loop over independent outputs, shared among threads. The iterations never add into one another, so the number of threads
// cannot change a bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace reference {

// Calls body(i) for i in [0, count). body must not write what another iteration reads or writes. The first exception is rethrown.
template <typename Body>
void parallel_for(int64_t count, int num_threads, const Body& body) {
  const int64_t workers = std::clamp<int64_t>(num_threads, 1, std::max<int64_t>(count, 1));
  if (workers == 1) {
    for (int64_t i = 0; i < count; ++i) {
      body(i);
    }
    return;
  }
  std::exception_ptr failure;
  std::mutex failure_mutex;
  std::vector<std::jthread> threads;
  for (int64_t worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      try {
        for (int64_t i = count * worker / workers; i < count * (worker + 1) / workers; ++i) {
          body(i);
        }
      } catch (...) {
        const std::scoped_lock lock(failure_mutex);
        failure = failure ? failure : std::current_exception();
      }
    });
  }
  threads.clear();
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace reference
