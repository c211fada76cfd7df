// The paged latent cache on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/portable/types.hpp"

namespace gpu {

inline constexpr int64_t kPageRows = 64;  // positions in a page

// Pages of every layer, those of MTP layers behind the others; a page number means the same in all of them.
struct LatentCache {
  std::vector<std::byte*> pages = {};  // [num_pages, 64, row_bytes] each
  int64_t row_bytes = 0;
  bool is_fp8 = false;  // rows as gpu/kernels/fp8_cache.cuh has them, else [kv_lora + rope] half16

  // One of the two is null.
  [[nodiscard]] half16* half16_pages(size_t layer) const {
    return is_fp8 ? nullptr : reinterpret_cast<half16*>(pages[layer]);
  }
  [[nodiscard]] unsigned char* fp8_pages(size_t layer) const {
    return is_fp8 ? reinterpret_cast<unsigned char*>(pages[layer]) : nullptr;
  }
};

}  // namespace gpu
