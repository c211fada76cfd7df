// Counts what a test program asks the system for: included by one file of a program, whose new and delete it replaces.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace counted_memory {

inline std::atomic<int64_t> num_allocations = 0;
inline std::atomic<int64_t> num_bytes_held = 0;
inline std::atomic<int64_t> num_bytes_at_most = 0;  // exact where one thread allocates

[[gnu::noinline]] inline void* take(std::size_t num_bytes, std::size_t alignment) {
  ++num_allocations;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, num_bytes) != 0) {
    throw std::bad_alloc();
  }
  const int64_t held = num_bytes_held += static_cast<int64_t>(malloc_usable_size(memory));
  num_bytes_at_most = std::max<int64_t>(num_bytes_at_most, held);
  return memory;
}

[[gnu::noinline]] inline void release(void* memory) {
  num_bytes_held -= memory == nullptr ? 0 : static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace counted_memory

// The other forms of new and delete go through these.
void* operator new(std::size_t num_bytes) {
  return counted_memory::take(num_bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t num_bytes, std::align_val_t alignment) {
  return counted_memory::take(num_bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  counted_memory::release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  counted_memory::release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  counted_memory::release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  counted_memory::release(memory);
}
