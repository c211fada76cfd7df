// BF16 rounding by integer arithmetic on the float's bits.
#include "reference/numerics/bf16.hpp"

#include <bit>

#include "model/dtype.hpp"

namespace reference {

uint16_t encode_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) {
    return static_cast<uint16_t>((bits >> 16) | 0x40);  // the quiet bit, so that cutting the payload leaves no infinity
  }
  const uint32_t tie_to_even = (bits >> 16) & 1;
  return static_cast<uint16_t>((bits + 0x7FFF + tie_to_even) >> 16);
}

float round_to_bf16(float value) {
  return model::decode_bf16(encode_bf16(value));
}

}  // namespace reference
