// What a TMA descriptor says, as far as kernels here use it: rows of bytes in device memory, of which boxes of 128 bytes by some rows are
// copied.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpu::emulation {

struct TensorMap {
  const std::byte* start = nullptr;
  int64_t num_rows = 0;
  int64_t row_bytes = 0;  // what lies beyond becomes 0, as do rows that do not exist
  int64_t row_stride_bytes = 0;
  int box_rows = 0;
};

}  // namespace gpu::emulation
