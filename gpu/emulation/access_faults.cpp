#include "gpu/emulation/access_faults.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "gpu/emulation/block_runner.hpp"

namespace gpu::emulation {
namespace {

std::mutex mutex;
std::vector<const DeviceMemory*> watched;  // guarded by mutex; only read by the handler
struct sigaction previous = {};
constinit thread_local const void* fault_address = nullptr;
constinit thread_local const DeviceMemory* fault_memory = nullptr;

// Runs on the stack of the thread that made the access, after the handler has returned.
void fail_running_thread() {
  BlockRunner::current()->fail(
      FaultKind::kOutOfBounds,
      "access to " + fault_memory->describe(fault_address) + "; a kernel compiled for checking names the line",
      kUnknownSite);
}

void handle(int signal, siginfo_t* info, void* context) {
  BlockRunner* runner = BlockRunner::current();
  const auto found =
      std::find_if(watched.begin(), watched.end(), [&](const auto* m) { return m->reserves(info->si_addr); });
  if (runner != nullptr && found != watched.end()) {
    fault_address = info->si_addr;
    fault_memory = *found;
#if defined(__x86_64__)
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    // As a call would leave it, below what the interrupted function may use without moving the stack pointer.
    registers[REG_RSP] = ((registers[REG_RSP] - 256) & ~15LL) - 8;
    registers[REG_RIP] = reinterpret_cast<greg_t>(&fail_running_thread);
    return;
#elif defined(__aarch64__)
    static_cast<ucontext_t*>(context)->uc_mcontext.pc = reinterpret_cast<unsigned long long>(&fail_running_thread);
    return;
#endif
  }
  // Not ours: as before, at the repetition of the access.
  sigaction(signal, &previous, nullptr);
}

}  // namespace

void watch_access_faults(const DeviceMemory& memory) {
  const std::lock_guard lock(mutex);
  if (watched.empty()) {
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous);
  }
  watched.push_back(&memory);
}

void unwatch_access_faults(const DeviceMemory& memory) {
  const std::lock_guard lock(mutex);
  std::erase(watched, &memory);
  if (watched.empty()) {
    sigaction(SIGSEGV, &previous, nullptr);
  }
}

}  // namespace gpu::emulation
