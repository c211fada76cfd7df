// A loop over independent outputs, shared among threads. The iterations never add into one another, so the number of threads
// cannot change a bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace reference {

// Calls body(begin, end) for ranges that together are [0, count), on up to num_threads threads, which are kept for the next call.
// In a loop that runs inside another one, or while another thread runs one, the caller does all the work itself.
// The first exception is rethrown when all threads are done.
void share_ranges(int64_t count, int num_threads, const std::function<void(int64_t, int64_t)>& body);

// Calls body(i) for i in [0, count). body must not write what another iteration reads or writes.
template <typename Body>
void parallel_for(int64_t count, int num_threads, const Body& body) {
  const auto range = [&body](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      body(i);
    }
  };
  if (num_threads <= 1 || count <= 1) {
    range(0, count);
  } else {
    share_ranges(count, num_threads, std::cref(range));
  }
}

}  // namespace reference
