// FP16 rounding by integer arithmetic on the float's bits.
#include "reference/numerics/fp16.hpp"

#include <bit>

#include "model/dtype.hpp"

namespace reference {
namespace {

constexpr int kDroppedBits = 23 - 10;
constexpr int kBiasDistance = 127 - 15;
constexpr uint32_t kInfinity = 0x7C00;

// `bits` without its last `count`, to nearest, ties to even.
uint32_t drop_bits(uint32_t bits, int count) {
  const uint32_t tie_to_even = (bits >> count) & 1;
  return (bits + (1U << (count - 1)) - 1 + tie_to_even) >> count;
}

uint32_t magnitude_code(uint32_t bits) {
  if (bits > 0x7F800000) {
    return kInfinity | 0x200 |
           (bits >> kDroppedBits & 0x1FF);  // the quiet bit, as nothing else may be left of the payload
  }
  const int exponent = static_cast<int>(bits >> 23) - kBiasDistance;  // FP16's exponent field
  if (exponent > 0) {
    const uint32_t code = drop_bits(bits - (static_cast<uint32_t>(kBiasDistance) << 23), kDroppedBits);
    return code < kInfinity ? code : kInfinity;
  }
  constexpr int kNothingLeft = -11;  // less than half of the smallest subnormal
  if (exponent < kNothingLeft) {
    return 0;
  }
  const uint32_t significand = (bits & 0x7FFFFF) | 0x800000;
  return drop_bits(significand, kDroppedBits + 1 - exponent);
}

}  // namespace

uint16_t encode_fp16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | magnitude_code(bits & 0x7FFFFFFF));
}

float round_to_fp16(float value) {
  return decode_fp16(encode_fp16(value));
}

float decode_fp16(uint16_t code) {
  return static_cast<float>(model::decode(model::DType::kF16, reinterpret_cast<const std::byte*>(&code)));
}

}  // namespace reference
