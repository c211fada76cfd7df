// The functions that a compiler calls before each load and store under -fsanitize=thread, answered by our own race checker instead of
// the sanitizer's run-time library, which is not linked. Names and arguments: LLVM compiler-rt, tsan_interface.h; g++ 12 and clang 14.
#include <cstdint>
#include <cstring>

#include "gpu/emulation/block_runner.hpp"
#include "gpu/emulation/race_checker.hpp"

namespace gpu::emulation {
namespace {

// In random order, how often a thread is interrupted at an access: once in so many. Without it a read-modify-write looks atomic,
// because fibers change at synchronisation alone.
constexpr uint64_t kAccessesPerInterruption = 8;

constinit thread_local bool inside = false;  // the runner and the checker may themselves be inlined into checked code

// Whose access is it, if anybody's? Guarded, because inline functions of the runner may be compiled checked as well.
RaceChecker* checker_of(const BlockRunner* runner, const void* address) {
  if (inside || runner == nullptr) {
    return nullptr;
  }
  inside = true;
  RaceChecker* checker = runner->checker();
  checker = checker != nullptr && checker->watches(address) ? checker : nullptr;
  inside = false;
  return checker;
}

void note(const void* address, int64_t num_bytes, AccessKind kind, const void* program_counter) {
  BlockRunner* runner = BlockRunner::current();
  RaceChecker* checker = checker_of(runner, address);
  if (checker == nullptr) {
    return;
  }
  const bool is_scalar = (num_bytes & (num_bytes - 1)) == 0;
  if (is_scalar && reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(num_bytes) != 0) {
    runner->misaligned(address, num_bytes, program_counter);
  }
  checker->access(runner->thread_id(), address, num_bytes, kind, RaceChecker::origin_of(program_counter));
  if (runner->options().order.kind == OrderKind::kRandom && runner->random() % kAccessesPerInterruption == 0) {
    runner->interrupt();
  }
}

}  // namespace
}  // namespace gpu::emulation

// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming)
#define DSV3_HOOK(name, bytes, kind)                                                                     \
  void name(void* address) {                                                                             \
    gpu::emulation::note(address, bytes, gpu::emulation::AccessKind::kind, __builtin_return_address(0)); \
  }
#define DSV3_HOOKS(bytes)                              \
  DSV3_HOOK(__tsan_read##bytes, bytes, kRead)          \
  DSV3_HOOK(__tsan_write##bytes, bytes, kWrite)        \
  DSV3_HOOK(__tsan_volatile_read##bytes, bytes, kRead) \
  DSV3_HOOK(__tsan_volatile_write##bytes, bytes, kWrite)
#define DSV3_UNALIGNED_HOOKS(bytes)                     \
  DSV3_HOOK(__tsan_unaligned_read##bytes, bytes, kRead) \
  DSV3_HOOK(__tsan_unaligned_write##bytes, bytes, kWrite)

extern "C" {
DSV3_HOOKS(1)
DSV3_HOOKS(2)
DSV3_HOOKS(4)
DSV3_HOOKS(8)
DSV3_HOOKS(16)
DSV3_UNALIGNED_HOOKS(2)
DSV3_UNALIGNED_HOOKS(4)
DSV3_UNALIGNED_HOOKS(8)
DSV3_UNALIGNED_HOOKS(16)

void __tsan_read_range(void* address, uintptr_t num_bytes) {
  if (num_bytes > 0) {
    gpu::emulation::note(
        address, static_cast<int64_t>(num_bytes), gpu::emulation::AccessKind::kRead, __builtin_return_address(0));
  }
}
void __tsan_write_range(void* address, uintptr_t num_bytes) {
  if (num_bytes > 0) {
    gpu::emulation::note(
        address, static_cast<int64_t>(num_bytes), gpu::emulation::AccessKind::kWrite, __builtin_return_address(0));
  }
}
// clang turns copies and fills of checked code into these.
void* __tsan_memcpy(void* to, const void* from, uintptr_t num_bytes) {
  __tsan_read_range(const_cast<void*>(from), num_bytes);
  __tsan_write_range(to, num_bytes);
  return std::memcpy(to, from, num_bytes);
}
void* __tsan_memmove(void* to, const void* from, uintptr_t num_bytes) {
  __tsan_read_range(const_cast<void*>(from), num_bytes);
  __tsan_write_range(to, num_bytes);
  return std::memmove(to, from, num_bytes);
}
void* __tsan_memset(void* to, int value, uintptr_t num_bytes) {
  __tsan_write_range(to, num_bytes);
  return std::memset(to, value, num_bytes);
}
void __tsan_init() {}
void __tsan_func_entry(void* /*caller*/) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void** /*slot*/) {}
void __tsan_vptr_update(void** /*slot*/, void* /*value*/) {}

// Atomics of host code in checked files (shared pointers, guards of statics): done, not checked. Kernels use the portability layer's.
#define DSV3_ATOMIC(bits, type)                                                                                \
  type __tsan_atomic##bits##_load(const volatile type* at, int) {                                              \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                              \
  }                                                                                                            \
  void __tsan_atomic##bits##_store(volatile type* at, type value, int) {                                       \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                             \
  }                                                                                                            \
  type __tsan_atomic##bits##_exchange(volatile type* at, type value, int) {                                    \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                            \
  type __tsan_atomic##bits##_fetch_add(volatile type* at, type value, int) {                                   \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                            \
  type __tsan_atomic##bits##_fetch_sub(volatile type* at, type value, int) {                                   \
    return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                            \
  type __tsan_atomic##bits##_fetch_and(volatile type* at, type value, int) {                                   \
    return __atomic_fetch_and(at, value, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                            \
  type __tsan_atomic##bits##_fetch_or(volatile type* at, type value, int) {                                    \
    return __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST);                                                     \
  }                                                                                                            \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile type* at, type* expected, type value, int, int) { \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
  }                                                                                                            \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile type* at, type* expected, type value, int, int) {   \
    return __atomic_compare_exchange_n(at, expected, value, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
  }
DSV3_ATOMIC(8, uint8_t)
DSV3_ATOMIC(16, uint16_t)
DSV3_ATOMIC(32, uint32_t)
DSV3_ATOMIC(64, uint64_t)
void __tsan_atomic_thread_fence(int /*order*/) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int /*order*/) {}
}
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)
