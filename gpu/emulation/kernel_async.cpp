#include "gpu/emulation/kernel_async.hpp"

#include "gpu/emulation/race_checker.hpp"
#include "gpu/portable/require.hpp"

namespace gpu::emulation {

TensorMap make_tensor_map(
    const void* start, int64_t num_rows, int64_t row_bytes, int64_t row_stride_bytes, int box_rows) {
  require(reinterpret_cast<uintptr_t>(start) % 16 == 0 && row_stride_bytes % 16 == 0,
          "make_tensor_map: start and stride have to be multiples of 16 bytes");
  require(box_rows > 0 && box_rows <= 256, "make_tensor_map: a box has 1 to 256 rows");
  return {static_cast<const std::byte*>(start), num_rows, row_bytes, row_stride_bytes, box_rows};
}

void fence_async() {
  BlockRunner& runner = *BlockRunner::current();
  if (runner.checker() != nullptr) {
    runner.checker()->async_fence(runner.thread_id());
  }
}

}  // namespace gpu::emulation
