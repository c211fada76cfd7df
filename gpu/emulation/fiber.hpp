// Stacks that one OS thread switches between: one for each CUDA thread that waits.
// x86-64 and AArch64 have a hand-written switch (about 10 ns); others use ucontext (about 250 ns).
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#define DSV3_FIBER_UCONTEXT 1
#else
#define DSV3_FIBER_UCONTEXT 0
#endif

namespace gpu::emulation {

// A place to continue at: its own stack, or, default-constructed, the stack of the OS thread itself.
class Fiber {
 public:
  Fiber() = default;
  // entry(argument) starts at the first switch to this fiber and must never return. `index` staggers the stacks: tops at equal
  // offsets would compete for one set of the cache.
  Fiber(void (*entry)(void*), void* argument, int index);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Forgets what ran here; the next switch starts entry(argument) anew. Objects on the old stack are not destroyed.
  void reset();

  // Leaves `from`, which must be running, and continues `to`.
  static void change(Fiber& from, Fiber& to);

 private:
  static void trampoline();
  void finish_change();

  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::byte* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  size_t stagger_bytes_ = 0;
#if DSV3_FIBER_UCONTEXT
  ucontext_t context_ = {};
#else
  void* stack_pointer_ = nullptr;
#endif
  void* fake_stack_ = nullptr;          // AddressSanitizer's, while the fiber is not running
  const void* thread_stack_ = nullptr;  // of the OS thread, as AddressSanitizer knows it
};

}  // namespace gpu::emulation
