// FP8 E4M3 rounding by integer arithmetic on the float's bits.
#include "reference/numerics/fp8.hpp"

#include <bit>

#include "model/dtype.hpp"

namespace reference {
namespace {

constexpr uint32_t kMinNormal = 0x3C800000;          // 2^-6
constexpr uint32_t kLastRoundingTo448 = 0x43E80000;  // 464, half way to the 480 that the format does not have
constexpr uint32_t kInfinity = 0x7F800000;
constexpr uint32_t kRebias = 0x3C000000;  // 127 - 7 exponent steps

}  // namespace

uint8_t encode_f8_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const uint32_t sign = (bits >> 24) & 0x80;
  if (magnitude > kInfinity) {
    return 0x7F;
  }
  if (magnitude > kLastRoundingTo448) {
    return static_cast<uint8_t>(sign | 0x7E);
  }
  if (magnitude >= kMinNormal) {
    const uint32_t tie_to_even = (magnitude >> 20) & 1;
    return static_cast<uint8_t>(sign | ((magnitude + 0x7FFFF + tie_to_even - kRebias) >> 20));
  }
  // One ulp of 2^14 is 2^-9, the step of the subnormal codes: the addition rounds to a multiple of it, ties to even.
  constexpr float kAligner = 16384.0f;
  const uint32_t num_steps =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + kAligner) - std::bit_cast<uint32_t>(kAligner);
  return static_cast<uint8_t>(sign | num_steps);
}

float round_to_f8_e4m3(float value) {
  return model::decode_f8_e4m3(encode_f8_e4m3(value));
}

float round_up_to_power_of_two(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFFFF) & 0xFF800000);
}

}  // namespace reference
