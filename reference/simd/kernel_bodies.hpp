// The kernels of one level, written over its vectors. Included once by the file of each level, inside its unnamed namespace, behind
// Vec, Joined, the tile sizes, load(), store(), load_bf16(), Wide with widen_e4m3() and load_wide(), multiply_add(), multiply_add_fused(), join(), finish().
// Loops over single elements are plain: the compiler makes vectors of them, and no order is left to it.

constexpr int kPacks = 16 / kVecLen;
constexpr uint32_t kMagnitude = 0x7FFFFFFF;
constexpr uint32_t kInfinity = 0x7F800000;

inline uint32_t bits_of(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
inline float float_of(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

// 1 where products with a like number might not fit a float.
inline uint32_t is_extreme(uint32_t magnitude) {
  constexpr uint32_t kSmallest = __builtin_bit_cast(uint32_t, kSmallestExact);
  constexpr uint32_t kLargest = __builtin_bit_cast(uint32_t, kLargestExact);
  return static_cast<uint32_t>(magnitude != 0) & static_cast<uint32_t>(magnitude - kSmallest >= kLargest - kSmallest);
}

#include "reference/simd/decode_bodies.hpp"
#include "reference/simd/element_bodies.hpp"
#include "reference/simd/product_bodies.hpp"
#include "reference/simd/row_bodies.hpp"

constexpr Kernels table_of(Level level) {
  return {.level = level,
          .add_block = add_block,
          .add_e4m3_rows = add_e4m3_rows,
          .add_bf16_rows = add_bf16_rows,
          .dots = dots,
          .weighted_rows = weighted_rows,
          .decode_e4m3 = decode_e4m3,
          .decode_e4m3_panel = decode_e4m3_panel,
          .decode_bf16_panel = decode_bf16_panel,
          .decode_bf16 = decode_bf16,
          .encode_bf16 = encode_bf16,
          .scale_to_bf16 = scale_to_bf16,
          .dequantize_e4m3 = dequantize_e4m3,
          .is_bf16 = is_bf16,
          .largest_magnitude = largest_magnitude,
          .quotients_to_e4m3 = quotients_to_e4m3,
          .products_to_e4m3 = products_to_e4m3,
          .exp = exponentials,
          .silu = silus};
}
