// The loop of any_order_tile.hpp for every machine.
#include "reference/any_order_tile.hpp"

namespace reference {
namespace {

using Vec = float __attribute__((vector_size(16)));

constexpr int64_t kVecLen = 4;
constexpr int kRowsOfSums = 6;  // 6 x 2 sums, two vectors of tokens, one of a weight: 15 of 16 registers

inline Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
inline void store(float* p, Vec v) {
  __builtin_memcpy(p, &v, sizeof(v));
}
inline Vec every_lane(float number) {
  return Vec{number, number, number, number};
}
inline Vec multiply(Vec a, Vec b) {
  return a * b;
}
inline Vec add(Vec a, Vec b) {
  return a + b;
}
inline Vec fused(Vec a, Vec b, Vec sum) {
  return a * b + sum;
}

#include "reference/any_order_tile_bodies.hpp"

}  // namespace

const TileKernel kBaselineTile{.vec_len = kVecLen, .add = add_products};

}  // namespace reference
