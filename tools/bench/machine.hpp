// What the machine itself can do, measured by the plainest loops: the yardsticks of a benchmark run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "reference/simd/level.hpp"

namespace tools {

// "AMD EPYC ...", from the operating system; "unknown" where it does not say.
std::string cpu_name();
// Bytes of the last-level cache, 32 MiB where the system does not say.
int64_t last_level_cache_bytes();

// Multiply-adds in FP32 on registers alone: `num_rounds` times num_macs_of_round(level). Returns a number that depends on all of
// them, so that none is left out.
float multiply_add_loop(reference::simd::Level level, int64_t num_rounds);
int64_t num_macs_of_round(reference::simd::Level level);

// Multiply-adds with an operand in the first cache, `num_rounds` times kNumLoadsOfRound vectors of the level: as many as a core loads.
float load_loop(reference::simd::Level level, int64_t num_rounds);
inline constexpr int64_t kNumLoadsOfRound = 12;

// Operations on whole vectors of integers in registers, `num_rounds` times kNumOperationsOfRound: as many as a core has ports for vectors.
uint64_t vector_operation_loop(reference::simd::Level level, int64_t num_rounds);
inline constexpr int64_t kNumOperationsOfRound = 12;

// Reads every byte once and returns their exclusive or by 8 bytes.
uint64_t read_all(std::span<const std::byte> bytes);

}  // namespace tools
