#include "gpu/emulation/fiber.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define DSV3_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DSV3_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef DSV3_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace gpu::emulation {
namespace {

constexpr size_t kGuardBytes = 4096;
// An odd number of pages: stacks a power of two apart would compete for a few sets of the second cache.
#ifdef DSV3_ADDRESS_SANITIZER
constexpr size_t kStackBytes = (size_t{256} << 10) + kGuardBytes;
#else
constexpr size_t kStackBytes = (size_t{64} << 10) + kGuardBytes;
#endif

// The fiber that the running code was switched to.
constinit thread_local Fiber* arriving = nullptr;
#ifdef DSV3_ADDRESS_SANITIZER
constinit thread_local Fiber* leaving = nullptr;
#endif

}  // namespace

#if defined(__x86_64__)
// Saves what the ABI lets a callee expect to survive, changes the stack pointer, restores. The floating-point control words are the
// same for all fibers of a thread.
extern "C" void dsv3_change_stack(void** saved_stack_pointer, void* new_stack_pointer);
asm(R"(
.text
.p2align 4
.globl dsv3_change_stack
.type dsv3_change_stack, @function
dsv3_change_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size dsv3_change_stack, .-dsv3_change_stack
)");
constexpr size_t kNumSavedWords = 6;
#elif defined(__aarch64__)
// Not run on this architecture so far.
extern "C" void dsv3_change_stack(void** saved_stack_pointer, void* new_stack_pointer);
asm(R"(
.text
.p2align 4
.globl dsv3_change_stack
.type dsv3_change_stack, @function
dsv3_change_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size dsv3_change_stack, .-dsv3_change_stack
)");
#endif

Fiber::Fiber(void (*entry)(void*), void* argument, int index)
    : entry_(entry), argument_(argument), stagger_bytes_(static_cast<size_t>(index % 32) * 192) {
  void* mapped = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED || mprotect(mapped, kGuardBytes, PROT_NONE) != 0) {
    throw std::bad_alloc();
  }
  stack_ = static_cast<std::byte*>(mapped);
  stack_bytes_ = kStackBytes - stagger_bytes_;
  reset();
}

Fiber::~Fiber() {
  if (stack_ != nullptr) {
    munmap(stack_, kStackBytes);
  }
}

void Fiber::reset() {
  fake_stack_ = nullptr;
  thread_stack_ = nullptr;
#ifdef DSV3_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(stack_ + kGuardBytes, kStackBytes - kGuardBytes);
#endif
#if DSV3_FIBER_UCONTEXT
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_ + kGuardBytes;
  context_.uc_stack.ss_size = stack_bytes_ - kGuardBytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::trampoline, 0);
#else
  auto* top = reinterpret_cast<void**>(stack_ + stack_bytes_);
#if defined(__x86_64__)
  // As after a call: the word above the return address is 16-byte aligned.
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&Fiber::trampoline);
  for (size_t i = 0; i < kNumSavedWords; ++i) {
    *--top = nullptr;
  }
#else
  top -= 20;
  for (int i = 0; i < 20; ++i) {
    top[i] = nullptr;
  }
  top[11] = reinterpret_cast<void*>(&Fiber::trampoline);  // x30, the link register
#endif
  stack_pointer_ = top;
#endif
}

void Fiber::trampoline() {
  Fiber& self = *arriving;
  self.finish_change();
  self.entry_(self.argument_);
  std::abort();  // an entry must not return
}

void Fiber::finish_change() {
#ifdef DSV3_ADDRESS_SANITIZER
  const void* left_bottom = nullptr;
  size_t left_bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &left_bottom, &left_bytes);
  // The OS thread's own stack is known to AddressSanitizer alone: learnt at the first switch away from it.
  if (leaving->stack_ == nullptr) {
    leaving->thread_stack_ = left_bottom;
    leaving->stack_bytes_ = left_bytes;
  }
#endif
}

void Fiber::change(Fiber& from, Fiber& to) {
  arriving = &to;
#ifdef DSV3_ADDRESS_SANITIZER
  leaving = &from;
  const void* bottom = to.stack_ != nullptr ? to.stack_ : to.thread_stack_;
  __sanitizer_start_switch_fiber(&from.fake_stack_, bottom, to.stack_bytes_);
#endif
#if DSV3_FIBER_UCONTEXT
  swapcontext(&from.context_, &to.context_);
#else
  dsv3_change_stack(&from.stack_pointer_, to.stack_pointer_);
#endif
  arriving->finish_change();
}

}  // namespace gpu::emulation
