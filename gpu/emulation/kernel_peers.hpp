// The portability layer's words between devices on the host: release stores, acquire loads, and waiting for a flag of a peer.
#pragma once

#include <cstdint>

#include "gpu/emulation/site.hpp"
#include "gpu/portable/backend.hpp"

namespace gpu::emulation {

void store_release_system(uint32_t* to, uint32_t value, Site site);
uint32_t load_acquire_system(const uint32_t* from, Site site);
void wait_for_flag(const uint32_t* flag, uint32_t epoch, Site site);

}  // namespace gpu::emulation

namespace gpu::DSV3_BACKEND {

using emulation::Site;

// Whoever reads the value with load_acquire_system(), on any device, sees what this thread did or learnt before (st.release.sys).
inline void store_release_system(uint32_t* to, uint32_t value, Site site = Site::here()) {
  emulation::store_release_system(to, value, site);
}
inline uint32_t load_acquire_system(const uint32_t* from, Site site = Site::here()) {
  return emulation::load_acquire_system(from, site);
}
// Until the flag has reached the epoch (counted modulo 2^32) in the acquire order. Written by a peer's kernel, never by a block of the
// same grid. A flag that does not come in time is a deadlock here and a trap on a device.
inline void wait_for_flag(const uint32_t* flag, uint32_t epoch, Site site = Site::here()) {
  emulation::wait_for_flag(flag, epoch, site);
}

}  // namespace gpu::DSV3_BACKEND
