// The uniform number that decides a token, and the FP64 functions of the sampler. Written here a second time on purpose: model/ has the
// description (model/sampling.hpp: key = seed, counter = position, draw, request), and device and reference share no arithmetic.
#pragma once

#include <cmath>

#include "gpu/portable/kernel.hpp"

namespace gpu::DSV3_BACKEND {

// Bits of an FP64 number through a copy, which both compilers make a move.
GPU_DEVICE int64_t bits_of_double(double x) {
  int64_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}
GPU_DEVICE double double_of_bits(int64_t bits) {
  double x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}
// The platform's, about 1 ulp.
GPU_DEVICE double exp_double(double x) {
  return ::exp(x);
}

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC11). The first two words of the block are the 53 bits of a number in [0, 1).
GPU_DEVICE double uniform_draw(uint64_t seed, int64_t request, int64_t position, uint32_t draw) {
  auto c0 = static_cast<uint32_t>(position);
  uint32_t c1 = draw;
  auto c2 = static_cast<uint32_t>(request);
  auto c3 = static_cast<uint32_t>(static_cast<uint64_t>(request) >> 32);
  auto k0 = static_cast<uint32_t>(seed);
  auto k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{c0} * 0xD2511F53U;
    const uint64_t right = uint64_t{c2} * 0xCD9E8D57U;
    c0 = static_cast<uint32_t>(right >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(right);
    c2 = static_cast<uint32_t>(left >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(left);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  const uint64_t bits = (uint64_t{c1} << 32 | c0) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace gpu::DSV3_BACKEND
