// The conversions of the device's number formats, on the host.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "gpu/portable/types.hpp"

namespace gpu::DSV3_BACKEND {

inline float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

// To nearest, halfway to even; NaN gives 0x7FFF.
inline bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x != x) {
    return {0x7FFF};
  }
  const uint32_t kept = bits >> 16;
  const uint32_t dropped = bits & 0xFFFFU;
  const bool up = dropped > 0x8000U || (dropped == 0x8000U && (kept & 1U) != 0);
  return {static_cast<uint16_t>(kept + (up ? 1 : 0))};
}

inline float to_float(fp16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000U) << 16;
  const uint32_t magnitude = x.bits & 0x7FFFU;
  if (magnitude >= 0x7C00) {
    return std::bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13);
  }
  // As below: FP32's bias is 127, this one's 15.
  return std::bit_cast<float>(sign | magnitude << 13) * 0x1p112f;
}

// To nearest, halfway to even, subnormals included; from 65520 on gives infinity, NaN gives 0x7FFF.
inline fp16 to_fp16(float x) {
  if (x != x) {
    return {0x7FFF};
  }
  const auto sign = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 31 << 15);
  const float magnitude = std::fabs(x);
  if (magnitude >= 65536.0f) {
    return {static_cast<uint16_t>(sign | 0x7C00U)};
  }
  // As below, with steps of 2^(exponent - 10), at least 2^-24, of which a normal binade has 1024 to 2048.
  const int exponent = std::max(static_cast<int>(std::bit_cast<uint32_t>(magnitude) >> 23) - 127, -14);
  const float per_step = std::bit_cast<float>(static_cast<uint32_t>(10 - exponent + 127) << 23);
  const auto steps = static_cast<int>((magnitude * per_step + 0x1.8p23f) - 0x1.8p23f);
  return {static_cast<uint16_t>(sign | (steps + (exponent + 14) * 1024))};
}

inline float to_float(fp8_e4m3 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x80U) << 24;
  const uint32_t magnitude = x.bits & 0x7FU;
  if (magnitude == 0x7F) {
    return std::bit_cast<float>(sign | 0x7FC00000U);
  }
  // Exponent and fraction moved to where FP32 has them are the value times 2^-120: FP32's bias is 127, this one's 7.
  return std::bit_cast<float>(sign | magnitude << 20) * 0x1p120f;
}

// To nearest, halfway to even, subnormals included; beyond 448 gives 448, NaN gives 0x7F.
inline fp8_e4m3 to_fp8_e4m3(float x) {
  if (x != x) {
    return {0x7F};
  }
  const auto sign = static_cast<uint8_t>(std::bit_cast<uint32_t>(x) >> 31 << 7);
  const float magnitude = std::fabs(x);
  if (magnitude >= kLargestE4m3) {
    return {static_cast<uint8_t>(sign | 0x7EU)};
  }
  // Steps of 2^(exponent - 3), at least 2^-9. Scaling by a power of two is exact; adding 1.5 * 2^23 rounds to an even integer.
  const int exponent = std::max(static_cast<int>(std::bit_cast<uint32_t>(magnitude) >> 23) - 127, -6);
  const float per_step = std::bit_cast<float>(static_cast<uint32_t>(3 - exponent + 127) << 23);
  const auto steps = static_cast<int>((magnitude * per_step + 0x1.8p23f) - 0x1.8p23f);
  // 8 to 16 steps in a normal binade (16: the next one), 0 to 8 below: the codes of consecutive numbers are consecutive.
  return {static_cast<uint8_t>(sign | (steps + (exponent + 6) * 8))};
}

}  // namespace gpu::DSV3_BACKEND
