// The portability layer's shared memory, vector accesses, atomics and asynchronous copies on the host.
#pragma once

#include <cstdint>

#include "gpu/emulation/block_runner.hpp"
#include "gpu/portable/types.hpp"

namespace gpu::emulation {

enum class AccessKind;

// Tells the checker, if there is one, about an access that the emulation makes for the running thread.
void note(const void* address, int num_bytes, AccessKind kind, Site site);
[[noreturn]] void fail_misaligned(const void* address, int num_bytes, Site site);
// Fails the block when the address is no multiple of num_bytes.
inline void require_aligned(const void* address, unsigned num_bytes, Site site) {
  if (reinterpret_cast<uintptr_t>(address) % num_bytes != 0) {
    fail_misaligned(address, static_cast<int>(num_bytes), site);
  }
}
int32_t atomic_add(int32_t* to, int32_t value, Site site);
void thread_fence();
void wait_for_earlier_grids();
// 16 bytes, of which valid_bytes are read from `from`; the rest becomes 0. Happens at the latest moment the group allows (in random
// order half of the copies happen at once); until then the destination holds NaN.
void copy_async(void* to, const void* from, int valid_bytes, Site site);
void commit_copies();
void wait_copies(int num_groups_left, Site site);

}  // namespace gpu::emulation

namespace gpu::DSV3_BACKEND {

using emulation::Site;

// The first byte is 1024-byte aligned. Holds NaN until it is written.
template <typename T>
T* shared_memory_as() {
  return reinterpret_cast<T*>(emulation::BlockRunner::current()->shared_memory());
}

// The same for tiles, which start at multiples of 1024: ask for kTileSlackBytes more, since a device may have to round up.
inline constexpr int kTileSlackBytes = 1024;
template <typename T>
T* shared_tiles_as() {
  return shared_memory_as<T>();
}

// Part of the kernel at any level of optimisation: an access is reported at the line that makes it.
template <int N, typename T>
[[gnu::always_inline]] inline Vector<T, N> load_vector(const T* from, Site site = Site::here()) {
  emulation::require_aligned(from, sizeof(Vector<T, N>), site);
  return *reinterpret_cast<const Vector<T, N>*>(from);
}
template <int N, typename T>
[[gnu::always_inline]] inline void store_vector(T* to, const Vector<T, N>& value, Site site = Site::here()) {
  emulation::require_aligned(to, sizeof(Vector<T, N>), site);
  *reinterpret_cast<Vector<T, N>*>(to) = value;
}

// Relaxed, device scope; returns the old value. Orders other accesses only together with thread_fence().
inline int32_t atomic_add(int32_t* to, int32_t value, Site site = Site::here()) {
  return emulation::atomic_add(to, value, site);
}
inline void thread_fence() {
  emulation::thread_fence();
}
// Before the first read of what the grid in front of this one wrote, when launched with `early`.
inline void wait_for_earlier_grids() {
  emulation::wait_for_earlier_grids();
}

// 16 bytes from device to shared memory, both 16-byte aligned; bytes beyond valid_bytes become 0.
inline void copy_async_16(void* to, const void* from, int valid_bytes = 16, Site site = Site::here()) {
  emulation::copy_async(to, from, valid_bytes, site);
}
inline void commit_copies() {
  emulation::commit_copies();
}
// Waits until at most N of this thread's latest groups are unfinished. Other threads see the data after the next sync_threads().
template <int N>
void wait_copies(Site site = Site::here()) {
  emulation::wait_copies(N, site);
}

}  // namespace gpu::DSV3_BACKEND
