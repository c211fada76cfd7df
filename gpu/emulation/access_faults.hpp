// Turns an access to device memory that nobody allocated into a Fault of the kernel that made it.
#pragma once

#include "gpu/emulation/memory.hpp"

namespace gpu::emulation {

// While watched, a signal for an address that the memory reserves ends the block with a Fault kOutOfBounds; every other signal goes to
// whoever handled it before.
void watch_access_faults(const DeviceMemory& memory);
void unwatch_access_faults(const DeviceMemory& memory);

}  // namespace gpu::emulation
