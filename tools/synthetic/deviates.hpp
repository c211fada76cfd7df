// What 16 random bits stand for: a standard normal deviate, or the FP8 code nearest to one. Tables, so the bits are the same on
// every machine: they are made with +, * and / alone, no function of a maths library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tools::synthetic {

inline constexpr size_t kNumDeviates = 65536;

// Entry `bits`: quantile of the standard normal distribution at (bits + 1/2) / 65536. Symmetric, the largest 4.33.
[[nodiscard]] std::span<const double, kNumDeviates> normal_deviates();

// Entry `bits`: E4M3 code nearest to 448 / 3.9 * normal_deviates()[bits], saturating: one in 10,000 is beyond.
[[nodiscard]] std::span<const uint8_t, kNumDeviates> normal_codes();
// Standard deviation of the numbers that normal_codes() stand for.
[[nodiscard]] double normal_code_std();

// +448 or -448.
inline constexpr uint8_t kLargestCode = 0x7E;
inline constexpr uint8_t kSignBit = 0x80;

}  // namespace tools::synthetic
