#include "gpu/emulation/access_faults.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/emulation/block_runner.hpp"
#include "gpu/emulation/source_lines.hpp"

namespace gpu::emulation {
namespace {

std::mutex mutex;
std::vector<const DeviceMemory*> watched;  // guarded by mutex; only read by the handler
struct sigaction previous = {};
constinit thread_local const void* fault_address = nullptr;
constinit thread_local const DeviceMemory* fault_memory = nullptr;  // that reserves it; may be null
constinit thread_local uintptr_t fault_program_counter = 0;

std::string describe_fault(BlockRunner& runner) {
  const auto* const byte = static_cast<const std::byte*>(fault_address);
  if (fault_memory != nullptr) {
    return fault_memory->describe(byte);
  }
  if (runner.reserves(byte)) {
    return fmt::format("byte {} of shared memory, but the launch asked for {} bytes",
                       byte - runner.shared_memory(),
                       runner.shared_bytes());
  }
  return fmt::format("address {}, which no memory of the device has", fault_address);
}

// Runs on the stack of the thread that made the access, after the handler has returned.
void fail_running_thread() {
  BlockRunner& runner = *BlockRunner::current();
  const auto kind =
      fault_memory == nullptr && runner.reserves(fault_address) ? FaultKind::kSharedOverrun : FaultKind::kOutOfBounds;
  const std::string line = source_line(fault_program_counter + 1);
  const bool is_known = line.find(':') != std::string::npos;
  runner.fail(kind,
              fmt::format("{}access to {}{}",
                          is_known ? line + ": " : "",
                          describe_fault(runner),
                          is_known ? "" : "; a kernel compiled for checking names the line"),
              kUnknownSite);
}

void handle(int signal, siginfo_t* info, void* context) {
  if (BlockRunner::current() != nullptr) {
    const auto found =
        std::find_if(watched.begin(), watched.end(), [&](const auto* m) { return m->reserves(info->si_addr); });
    fault_address = info->si_addr;
    fault_memory = found != watched.end() ? *found : nullptr;
#if defined(__x86_64__)
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    fault_program_counter = static_cast<uintptr_t>(registers[REG_RIP]);
    // As a call would leave it, below what the interrupted function may use without moving the stack pointer.
    registers[REG_RSP] = ((registers[REG_RSP] - 256) & ~15LL) - 8;
    registers[REG_RIP] = reinterpret_cast<greg_t>(&fail_running_thread);
    return;
#elif defined(__aarch64__)
    auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
    fault_program_counter = static_cast<uintptr_t>(machine.pc);
    machine.pc = reinterpret_cast<unsigned long long>(&fail_running_thread);
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
