// What the tests of the inner loops share: the written order of sums restated, and numbers that show when it is not kept.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace reference::simd {

// All NaN are one here: which of several comes out of a sum is not defined.
inline uint32_t bits(float x) {
  return std::isnan(x) ? 0x7FC00000 : std::bit_cast<uint32_t>(x);
}

// Lehmer's generator, Park and Miller 1988.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint32_t next() {
    state_ = state_ * 48271 % 2147483647;
    return static_cast<uint32_t>(state_);
  }
  // Of very different size, so that nearly every other order of a sum ends in other bits.
  float scattered() {
    const float magnitude = static_cast<float>(next()) / static_cast<float>(uint64_t{1} << (next() % 40));
    return next() % 3 == 0 ? -magnitude : magnitude;
  }

 private:
  uint64_t state_;
};

// docs/numerics.md, section 2, one operation a line, for one block.
inline float restated_block_dot(const float* a, const float* b, int64_t len) {
  float lane[16] = {};
  for (int64_t k = 0; k < len; ++k) {
    const float product = a[k] * b[k];
    lane[k % 16] = lane[k % 16] + product;
  }
  for (int distance = 8; distance > 0; distance /= 2) {
    for (int i = 0; i < distance; ++i) {
      lane[i] = lane[i] + lane[i + distance];
    }
  }
  return lane[0];
}

}  // namespace reference::simd
