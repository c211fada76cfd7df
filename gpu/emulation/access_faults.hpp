// Turns an access to an address that cannot be touched into a Fault of the kernel that made it.
#pragma once

#include "gpu/emulation/memory.hpp"

namespace gpu::emulation {

// While any memory is watched, such an access of a running block ends the block: with a Fault kSharedOverrun around its shared memory, else
// kOutOfBounds, which names what is allocated nearby in a watched memory. Every other signal goes to whoever handled it before.
void watch_access_faults(const DeviceMemory& memory);
void unwatch_access_faults(const DeviceMemory& memory);

}  // namespace gpu::emulation
