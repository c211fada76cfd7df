// Memory that goes from one op to the next without the system being asked for it: what an op computes with lives shortly, and the next
// step asks for the same sizes again. Also aligned to a line of the cache, so that no vector crosses one.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace reference {

// At least num_bytes > 0 at a line. What was given back in this thread and fits is taken first. Beyond 1 MiB nothing is kept.
[[nodiscard]] void* take_memory(size_t num_bytes);
// `num_bytes` as it was asked for; any thread.
void give_memory(void* memory, size_t num_bytes) noexcept;

template <typename T>
struct ReusingAllocator {
  using value_type = T;

  ReusingAllocator() = default;
  template <typename Other>
  ReusingAllocator(const ReusingAllocator<Other>&) {}  // NOLINT(google-explicit-constructor): containers convert

  // Elements that are given no value get none: what is computed next is written over them.
  template <typename Element>
  void construct(Element* place) noexcept(std::is_nothrow_default_constructible_v<Element>) {
    ::new (static_cast<void*>(place)) Element;
  }
  template <typename Element, typename... Arguments>
  void construct(Element* place, Arguments&&... arguments) {
    ::new (static_cast<void*>(place)) Element(std::forward<Arguments>(arguments)...);
  }

  [[nodiscard]] T* allocate(size_t count) { return static_cast<T*>(take_memory(count * sizeof(T))); }
  void deallocate(T* memory, size_t count) noexcept { give_memory(memory, count * sizeof(T)); }

  template <typename Other>
  bool operator==(const ReusingAllocator<Other>&) const {
    return true;
  }
};

// Reused<float>(n) has n elements of no particular value; Reused<float>(n, 0.0f) has zeros.
template <typename T>
using Reused = std::vector<T, ReusingAllocator<T>>;

}  // namespace reference
