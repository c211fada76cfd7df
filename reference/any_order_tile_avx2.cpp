// The loop of any_order_tile.hpp for AVX2 and FMA; this file is compiled for them.
#include <immintrin.h>

#include "reference/any_order_tile.hpp"

namespace reference {
namespace {

using Vec = __m256;

constexpr int64_t kVecLen = 8;
constexpr int kRowsOfSums = 6;  // 6 x 2 sums, two vectors of tokens, one of a weight: 15 of 16 registers

inline Vec load(const float* p) {
  return _mm256_loadu_ps(p);
}
inline void store(float* p, Vec v) {
  _mm256_storeu_ps(p, v);
}
inline Vec every_lane(float number) {
  return _mm256_set1_ps(number);
}
inline Vec multiply(Vec a, Vec b) {
  return _mm256_mul_ps(a, b);
}
inline Vec add(Vec a, Vec b) {
  return _mm256_add_ps(a, b);
}
inline Vec fused(Vec a, Vec b, Vec sum) {
  return _mm256_fmadd_ps(a, b, sum);
}

#include "reference/any_order_tile_bodies.hpp"

}  // namespace

const TileKernel kAvx2Tile{.vec_len = kVecLen, .add = add_products};

}  // namespace reference
