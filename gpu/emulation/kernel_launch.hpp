// launch() and the names of streams and memory on the host.
#pragma once

#include <utility>

#include "gpu/emulation/device.hpp"
#include "gpu/portable/backend.hpp"

namespace gpu::DSV3_BACKEND {

using Stream = emulation::Stream;

struct LaunchShape {
  const char* name = "";  // of the kernel, in reports and counters: the op's
  emulation::Index3 grid;
  emulation::Index3 block;
  int64_t shared_bytes = 0;
  bool early = false;  // may start before the grid in front of it is done (programmatic dependent launch)
};

// Queues a kernel with its arguments (one struct, by value). Throws when the device would refuse it.
template <typename Arguments>
void launch(Stream stream, const LaunchShape& shape, void (*kernel)(Arguments), const Arguments& arguments) {
  stream.device->enqueue(
      stream,
      {shape.name, shape.grid, shape.block, shape.shared_bytes, [kernel, arguments] { kernel(arguments); }},
      DSV3_CHECKED != 0,
      shape.early);
}

}  // namespace gpu::DSV3_BACKEND
