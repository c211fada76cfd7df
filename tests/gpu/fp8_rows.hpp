// Rows of the latent cache in the FP8 form, made on the host: by the definition of the format for the bytes, by the reference's round
// trip for the values that they stand for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "gpu/kernels/fp8_cache.cuh"
#include "model/check.hpp"
#include "tests/gpu/harness.hpp"

namespace gpu::DSV3_BACKEND {

struct Fp8Rows {
  std::vector<unsigned char> bytes;
  std::vector<half16> values;  // what attention sees
};

// rows: [any, kv_lora + rope]
inline Fp8Rows fp8_rows(const std::vector<half16>& rows, int kv_lora, int rope) {
  const auto row_len = static_cast<size_t>(kv_lora + rope);
  const auto row_bytes = static_cast<size_t>(fp8_cache_row_bytes(kv_lora, rope));
  Fp8Rows result{{}, rows};
  result.bytes.resize(rows.size() / row_len * row_bytes, 0xFF);
  for (size_t row = 0; row < rows.size() / row_len; ++row) {
    unsigned char* const to = result.bytes.data() + row * row_bytes;
    std::vector<float> latent;
    for (int i = 0; i < kv_lora; ++i) {
      latent.push_back(model::decode_bf16(rows[row * row_len + static_cast<size_t>(i)].bits));
    }
    auto seen = latent;
    reference::round_trip_fp8_cache(seen);
    for (int block = 0; block < kv_lora / 128; ++block) {
      const auto begin = latent.begin() + block * 128;
      const float amax =
          std::abs(*std::max_element(begin, begin + 128, [](float a, float b) { return std::abs(a) < std::abs(b); }));
      const auto scale = static_cast<float>(std::exp2(std::ceil(std::log2(std::max(amax / 448.0f, 1e-4f)))));
      std::memcpy(to + kv_lora + block * 4, &scale, sizeof(scale));
      for (int i = block * 128; i < block * 128 + 128; ++i) {
        const auto at = static_cast<size_t>(i);
        to[i] = reference::encode_f8_e4m3(latent[at] / scale);
        CHECK_EQ(model::decode_f8_e4m3(to[i]) * scale, seen[at]);
        result.values[row * row_len + at] = {reference::encode_bf16(seen[at])};
      }
    }
    std::memcpy(to + kv_lora + kFp8CacheScaleBytes,
                rows.data() + row * row_len + static_cast<size_t>(kv_lora),
                static_cast<size_t>(rope) * sizeof(half16));
  }
  return result;
}

}  // namespace gpu::DSV3_BACKEND
