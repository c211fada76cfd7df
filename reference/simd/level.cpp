#include "reference/simd/level.hpp"

#include <array>
#include <utility>

#ifdef DSV3_SIMD_X86
#include <cpuid.h>
#endif

namespace reference::simd {
namespace {

constexpr std::array kNames{std::pair{Level::kBaseline, std::string_view("baseline")},
                            std::pair{Level::kAvx2, std::string_view("avx2")},
                            std::pair{Level::kAvx512, std::string_view("avx512")}};

#ifdef DSV3_SIMD_X86
// clang 14 does not know the feature by name.
bool has_f16c() {
  unsigned int eax = 0;
  unsigned int ebx = 0;
  unsigned int ecx = 0;
  unsigned int edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

}  // namespace

std::string_view level_name(Level level) {
  return kNames.at(static_cast<size_t>(level)).second;
}

std::optional<Level> parse_level(std::string_view name) {
  for (const auto& [level, candidate] : kNames) {
    if (candidate == name) {
      return level;
    }
  }
  return std::nullopt;
}

std::vector<Level> supported_levels() {
  std::vector<Level> levels{Level::kBaseline};
#ifdef DSV3_SIMD_X86
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
    levels.push_back(Level::kAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      levels.push_back(Level::kAvx512);
    }
  }
#endif
  return levels;
}

}  // namespace reference::simd
