// What 16 random bits stand for: a standard normal deviate, or the FP8 code nearest to one. Tables, so the bits are the same on
// every machine: they are made with +, * and / alone, no function of a maths library.
#pragma once

#include <cstdint>

namespace tools::synthetic {

// Quantile of the standard normal distribution at (bits + 1/2) / 65536: 65536 values, symmetric, the largest 4.33.
[[nodiscard]] double normal_deviate(uint16_t bits);

// E4M3 code nearest to 448 / kClip * normal_deviate(bits), saturating.
[[nodiscard]] uint8_t normal_code(uint16_t bits);
// Standard deviation of the numbers that normal_code() gives, over all bits.
[[nodiscard]] double normal_code_std();

// +448 or -448.
inline constexpr uint8_t kLargestCode = 0x7E;
inline constexpr uint8_t kSignBit = 0x80;

}  // namespace tools::synthetic
