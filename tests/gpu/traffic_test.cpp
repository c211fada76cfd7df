// The counters of a launch: sectors of device memory, each once, beside the bytes that threads asked for. Counted by hand.
#include <gtest/gtest.h>

#include "gpu/kernels/embed.cuh"
#include "tests/gpu/harness.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

// Rows of 2048 bytes are 64 sectors; the two rows asked for are read three times. Three ids lie in one sector; every thread reads one.
TEST(Traffic, Embed_MovesItsRowsOnce) {
  constexpr int kHidden = 1024;
  constexpr int64_t kRowBytes = 2048;
  Device device;
  const Stream stream = device.create_stream();
  const Buffer<half16> table(device, stream, random_bf16(int64_t{5} * kHidden, 1, 1), "table");
  const Buffer<int32_t> tokens(device, stream, std::vector<int32_t>{4, 0, 4}, "tokens");
  const Buffer<half16> out(device, stream, int64_t{3} * kHidden, "out");
  embed(stream,
        {.tokens = tokens.data(),
         .table = table.data(),
         .out = out.data(),
         .num_tokens = 3,
         .vocab = 5,
         .num_table_rows = 5,
         .hidden = kHidden});
  device.synchronize(stream);
  const auto& counted = device.counters().at("embed");
  EXPECT_EQ(counted.num_launches, 1);
  EXPECT_EQ(counted.sectors_read, 2 * 64 + 1);
  EXPECT_EQ(counted.sectors_written, 3 * 64);
  EXPECT_EQ(counted.bytes_loaded, 3 * kRowBytes + 3 * kEmbedThreads * 4);
  EXPECT_EQ(counted.bytes_stored, 3 * kRowBytes);
  EXPECT_EQ(counted.tensor_flops, 0);
}

}  // namespace
}  // namespace gpu::DSV3_BACKEND
