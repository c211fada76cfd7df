// What the emulation reports: a fault of a kernel, or of the program that launches it, with its kind.
#pragma once

#include <stdexcept>
#include <string>

namespace gpu::emulation {

enum class FaultKind {
  kDeadlock,       // nobody can run, somebody waits
  kDivergence,     // threads that should meet at one call are at different ones, or gone
  kMisaligned,     // a vector access at an address that is not a multiple of its size
  kSharedOverrun,  // an access outside the dynamic shared memory asked for
  kOutOfBounds,  // an access to device memory outside every allocation, or to an address that no memory of the device has
  kRace,         // two accesses, one of them a write, that nothing orders
  kBadLaunch,    // a launch the device would refuse
  kOutOfMemory,  // the memory budget is used up
  kBadStream,    // misuse of streams, events or graphs
};

// One line first (kernel, block, what), then details.
struct Fault : std::runtime_error {
  Fault(FaultKind kind_of, const std::string& what) : std::runtime_error(what), kind(kind_of) {}
  FaultKind kind;
};

}  // namespace gpu::emulation
