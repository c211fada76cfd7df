// The loop of any_order_tile.hpp for AVX-512; this file is compiled for them.
#include <immintrin.h>

#include "reference/any_order_tile.hpp"

namespace reference {
namespace {

using Vec = __m512;

constexpr int64_t kVecLen = 16;
constexpr int kRowsOfSums = 12;  // 12 x 2 sums, two vectors of tokens, one of a weight: 27 of 32 registers

inline Vec load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline void store(float* p, Vec v) {
  _mm512_storeu_ps(p, v);
}
inline Vec every_lane(float number) {
  return _mm512_set1_ps(number);
}
inline Vec multiply(Vec a, Vec b) {
  return _mm512_mul_ps(a, b);
}
inline Vec add(Vec a, Vec b) {
  return _mm512_add_ps(a, b);
}
inline Vec fused(Vec a, Vec b, Vec sum) {
  return _mm512_fmadd_ps(a, b, sum);
}

#include "reference/any_order_tile_bodies.hpp"

}  // namespace

const TileKernel kAvx512Tile{.vec_len = kVecLen, .add = add_products};

}  // namespace reference
