// The rows that prefill makes out of the cache, and the quantiser by itself: codes and scales as the reference gives them.
#include "gpu/kernels/gather_latent.cuh"

#include <gtest/gtest.h>

#include "gpu/kernels/quantize_rows.cuh"
#include "tests/gpu/fp8_rows.hpp"
#include "tests/gpu/harness.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

class Rows : public testing::TestWithParam<emulation::Order> {
 protected:
  Device device{{.order = GetParam()}};
  Stream stream = device.create_stream();
};

void expect_same(const QuantizedRows& expected, const Buffer<fp8_e4m3>& codes, const Buffer<float>& scales) {
  const auto got = codes.download();
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].bits, expected.codes[i].bits) << i;
  }
  const auto got_scales = scales.download();
  for (size_t i = 0; i < got_scales.size(); ++i) {  // NaN where nothing belongs
    ASSERT_TRUE(got_scales[i] == expected.scales[i] || (std::isnan(got_scales[i]) && std::isnan(expected.scales[i])))
        << i;
  }
}

// Rows longer than a block of threads takes at once, and one that ends inside a 128-block.
TEST_P(Rows, Quantized_AreTheReferencesToTheBit) {
  for (const int row_len : {1024 + 256, 128, 2048, 192, 40}) {
    const auto x = random_bf16(int64_t{3} * row_len, 5, 1);
    const auto expected = quantized(x, row_len, 4);
    const Buffer<half16> x_buffer(device, stream, x, "x");
    const Buffer<fp8_e4m3> codes(device, stream, int64_t{3} * row_len, "codes");
    const Buffer<float> scales(device, stream, static_cast<int64_t>(expected.scales.size()), "scales");
    quantize_rows(stream,
                  {.x = x_buffer.data(),
                   .codes = codes.data(),
                   .scales = scales.data(),
                   .num_rows = 3,
                   .scale_stride = 4,
                   .row_len = row_len});
    expect_same(expected, codes, scales);
  }
}

TEST_P(Rows, GatheredFromPages_KeepTheirOrder) {
  constexpr int kRope = 16;
  for (const int kv_lora : {512, 192}) {
    const int64_t row_len = kv_lora + kRope;
    const auto rows = random_bf16(4 * row_len, 2, 2);
    const std::vector<int64_t> slots{2 * 64 + 63, 0, 64, 1};
    std::vector<half16> pool(static_cast<size_t>(3 * 64 * row_len), half16{0x7FFF});
    std::vector<half16> latents;
    std::vector<half16> ropes;
    for (int64_t r = 0; r < 4; ++r) {
      const auto begin = rows.begin() + r * row_len;
      std::copy(begin, begin + row_len, pool.begin() + slots[static_cast<size_t>(r)] * row_len);
      latents.insert(latents.end(), begin, begin + kv_lora);
      ropes.insert(ropes.end(), begin + kv_lora, begin + row_len);
    }
    const auto expected = quantized(latents, kv_lora, 5);
    const Buffer<half16> cache(device, stream, pool, "cache");
    const Buffer<int64_t> slot_buffer(device, stream, slots, "slots");
    const Buffer<half16> latent(device, stream, 4 * kv_lora, "latent");
    const Buffer<half16> k_rope(device, stream, 4 * kRope, "k_rope");
    const Buffer<fp8_e4m3> codes(device, stream, 4 * kv_lora, "codes");
    const Buffer<float> scales(device, stream, static_cast<int64_t>(expected.scales.size()), "scales");
    gather_latent(stream,
                  {.cache = cache.data(),
                   .slots = slot_buffer.data(),
                   .latent = latent.data(),
                   .k_rope = k_rope.data(),
                   .codes = codes.data(),
                   .scales = scales.data(),
                   .num_rows = 4,
                   .scale_stride = 5,
                   .kv_lora = kv_lora,
                   .rope = kRope});
    expect_same(expected, codes, scales);
    const auto got_latent = latent.download();
    const auto got_rope = k_rope.download();
    EXPECT_EQ(std::memcmp(got_latent.data(), latents.data(), latents.size() * sizeof(half16)), 0);
    EXPECT_EQ(std::memcmp(got_rope.data(), ropes.data(), ropes.size() * sizeof(half16)), 0);
  }
}

TEST_P(Rows, GatheredFromPagesInFp8_AreTheirValues) {
  constexpr int kRope = 16;
  for (const int kv_lora : {512, 128}) {
    const auto rows = fp8_rows(random_bf16(int64_t{64} * (kv_lora + kRope), 2, 3), kv_lora, kRope);
    const std::vector<int64_t> slots{63, 0, 5};
    const Buffer<unsigned char> cache(device, stream, rows.bytes, "cache_fp8");
    const Buffer<int64_t> slot_buffer(device, stream, slots, "slots");
    const Buffer<half16> latent(device, stream, 3 * kv_lora, "latent");
    const Buffer<half16> k_rope(device, stream, 3 * kRope, "k_rope");
    gather_latent(stream,
                  {.slots = slot_buffer.data(),
                   .latent = latent.data(),
                   .k_rope = k_rope.data(),
                   .num_rows = 3,
                   .kv_lora = kv_lora,
                   .rope = kRope,
                   .cache_fp8 = cache.data()});
    const auto got = latent.download();
    const auto got_rope = k_rope.download();
    for (size_t r = 0; r < slots.size(); ++r) {
      const auto* const expected = rows.values.data() + slots[r] * (kv_lora + kRope);
      EXPECT_EQ(std::memcmp(got.data() + r * kv_lora, expected, kv_lora * sizeof(half16)), 0);
      EXPECT_EQ(std::memcmp(got_rope.data() + r * kRope, expected + kv_lora, kRope * sizeof(half16)), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, Rows, testing::ValuesIn(kOrders));

}  // namespace
}  // namespace gpu::DSV3_BACKEND
