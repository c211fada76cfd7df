// Philox4x32-10: a counter-based random generator. Any draw is made alone, in any order, from what it is for.
#pragma once

#include <array>
#include <cstdint>

namespace model {

// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC11; 10 rounds.
[[nodiscard]] std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace model
