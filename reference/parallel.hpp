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

// How many threads a loop of so many multiply-adds is worth. Handing a loop to a thread that sleeps costs about as much as a quarter of
// a million of them (10 us): the products of a small model's single token are less.
inline int threads_for(int64_t num_macs, int num_threads) {
  constexpr int64_t kMacsWorthAThread = 1 << 18;
  return static_cast<int>(std::clamp<int64_t>(num_macs / kMacsWorthAThread, 1, num_threads));
}

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
