// Levels of vector instructions that one binary holds kernels for. Every level computes the same bits; only the speed differs.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace reference::simd {

enum class Level {
  kBaseline,  // vectors of 16 bytes: SSE2 on x86-64, NEON on ARMv8, whatever the compiler makes of them elsewhere
  kAvx2,      // AVX2, FMA and F16C
  kAvx512,    // AVX-512 F, BW, DQ and VL
};

// "baseline", "avx2", "avx512".
[[nodiscard]] std::string_view level_name(Level level);
// Empty when the name is not one of the above.
[[nodiscard]] std::optional<Level> parse_level(std::string_view name);
// What this build holds and this CPU runs, ascending; the first is always kBaseline.
[[nodiscard]] std::vector<Level> supported_levels();

}  // namespace reference::simd
