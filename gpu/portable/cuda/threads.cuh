// The portability layer's threads, meetings and FP32 functions on the device.
#pragma once

#include <cstdint>

#include "gpu/portable/backend.hpp"

namespace gpu::DSV3_BACKEND {

using Index3 = dim3;

GPU_DEVICE uint3 thread_idx() {
  return threadIdx;
}
GPU_DEVICE uint3 block_idx() {
  return blockIdx;
}
GPU_DEVICE dim3 block_dim() {
  return blockDim;
}
GPU_DEVICE dim3 grid_dim() {
  return gridDim;
}

GPU_DEVICE void sync_threads() {
  __syncthreads();
}
GPU_DEVICE void sync_warp(uint32_t mask = 0xFFFFFFFFU) {
  __syncwarp(mask);
}
GPU_DEVICE uint32_t ballot(uint32_t mask, bool vote) {
  return __ballot_sync(mask, vote);
}
template <typename T>
GPU_DEVICE T shuffle_xor(uint32_t mask, T value, int lane_mask) {
  return __shfl_xor_sync(mask, value, lane_mask);
}
template <typename T>
GPU_DEVICE T shuffle_from(uint32_t mask, T value, int lane) {
  return __shfl_sync(mask, value, lane);
}
template <typename T>
GPU_DEVICE T shuffle_down(uint32_t mask, T value, int distance) {
  return __shfl_down_sync(mask, value, distance);
}
GPU_DEVICE void spin_hint() {
  __nanosleep(20);
}

// Rounded to nearest whatever the compiler is told about contraction and division.
GPU_DEVICE float multiply(float a, float b) {
  return __fmul_rn(a, b);
}
GPU_DEVICE float add(float a, float b) {
  return __fadd_rn(a, b);
}
GPU_DEVICE float fused_multiply_add(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
GPU_DEVICE float divide(float a, float b) {
  return __fdiv_rn(a, b);
}
GPU_DEVICE float square_root(float x) {
  return __fsqrt_rn(x);
}
GPU_DEVICE int count_ones(uint32_t bits) {
  return __popc(bits);
}
GPU_DEVICE uint32_t bits_of(float x) {
  return __float_as_uint(x);
}
GPU_DEVICE float float_of(uint32_t bits) {
  return __uint_as_float(bits);
}

}  // namespace gpu::DSV3_BACKEND
