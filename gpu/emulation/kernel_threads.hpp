// The portability layer's threads and meetings on the host.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "gpu/emulation/block_runner.hpp"
#include "gpu/portable/backend.hpp"

namespace gpu::emulation {

// Each lane gets the 32-bit value of lane (own lane ^ operand), (operand) or (own lane + operand); a lane outside the warp gives its own.
enum class ShuffleKind { kXor, kFrom, kDown };
uint32_t shuffle(uint32_t mask, uint32_t value, int operand, ShuffleKind kind, Site site);
uint32_t ballot(uint32_t mask, bool vote, Site site);

}  // namespace gpu::emulation

namespace gpu::DSV3_BACKEND {

using emulation::Site;
using Index3 = emulation::Index3;

inline Index3 thread_idx() {
  return emulation::running_thread.thread;
}
inline Index3 block_idx() {
  return emulation::running_thread.block;
}
inline Index3 block_dim() {
  return emulation::running_thread.block_dim;
}
inline Index3 grid_dim() {
  return emulation::running_thread.grid_dim;
}

inline void sync_threads(Site site = Site::here()) {
  emulation::BlockRunner::current()->sync_threads(site);
}
inline void sync_warp(uint32_t mask = 0xFFFFFFFFU, Site site = Site::here()) {
  emulation::BlockRunner::current()->sync_warp(mask, site);
}
inline uint32_t ballot(uint32_t mask, bool vote, Site site = Site::here()) {
  return emulation::ballot(mask, vote, site);
}
// T has 4 bytes.
template <typename T>
T shuffle_xor(uint32_t mask, T value, int lane_mask, Site site = Site::here()) {
  return std::bit_cast<T>(
      emulation::shuffle(mask, std::bit_cast<uint32_t>(value), lane_mask, emulation::ShuffleKind::kXor, site));
}
template <typename T>
T shuffle_from(uint32_t mask, T value, int lane, Site site = Site::here()) {
  return std::bit_cast<T>(
      emulation::shuffle(mask, std::bit_cast<uint32_t>(value), lane, emulation::ShuffleKind::kFrom, site));
}
template <typename T>
T shuffle_down(uint32_t mask, T value, int distance, Site site = Site::here()) {
  return std::bit_cast<T>(
      emulation::shuffle(mask, std::bit_cast<uint32_t>(value), distance, emulation::ShuffleKind::kDown, site));
}
// In a loop that waits for a word of another thread.
inline void spin_hint(Site site = Site::here()) {
  emulation::BlockRunner::current()->yield(site);
}

// FP32 functions whose results are defined: the device's __fmul_rn and its like, sqrt and division to nearest.
inline float multiply(float a, float b) {
  return a * b;
}
inline float add(float a, float b) {
  return a + b;
}
inline float fused_multiply_add(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float divide(float a, float b) {
  return a / b;
}
inline float square_root(float x) {
  return std::sqrt(x);
}
// NaN is passed over.
inline float fmaxf(float a, float b) {
  return std::fmax(a, b);
}
inline float fabsf(float x) {
  return std::fabs(x);
}
inline float expf(float x) {
  return std::exp(x);
}
inline int count_ones(uint32_t bits) {
  return std::popcount(bits);
}
inline uint32_t bits_of(float x) {
  return std::bit_cast<uint32_t>(x);
}
inline float float_of(uint32_t bits) {
  return std::bit_cast<float>(bits);
}

}  // namespace gpu::DSV3_BACKEND
