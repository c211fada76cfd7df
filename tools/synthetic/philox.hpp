// Random bits for tensors: counter-based, so that any element of any tensor can be drawn alone, in any order.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "model/philox.hpp"

namespace tools::synthetic {

using model::philox4x32;

// The draws of one tensor: element index -> 16 bits, a pure function of (seed, name, index).
// Key = seed, counter = (index / 8, XXH3-64 of the name); each block serves eight neighbouring elements, so it is kept.
class Draws {
 public:
  Draws(uint64_t seed, std::string_view name);

  [[nodiscard]] uint16_t bits(int64_t index) {
    if (index / kDrawsPerBlock != block_idx_) {
      make_block(index / kDrawsPerBlock);
    }
    const auto lane = static_cast<uint32_t>(index % kDrawsPerBlock);
    return static_cast<uint16_t>(block_[lane / 2] >> (16 * (lane % 2)));
  }
  // In [0, 1).
  [[nodiscard]] double uniform(int64_t index) { return bits(index) / 65536.0; }

 private:
  static constexpr int64_t kDrawsPerBlock = 8;

  void make_block(int64_t block_idx);

  std::array<uint32_t, 2> key_;
  uint64_t name_hash_;
  int64_t block_idx_ = -1;
  std::array<uint32_t, 4> block_{};
};

}  // namespace tools::synthetic
