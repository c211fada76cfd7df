// How a tensor core adds up products, as published measurements of the hardware have it. Written for the device side alone: the
// reference has no part in it.
// Source: Fasi et al. and arXiv 2511.10909 (MMA-Sim), 2512.07004; docs/gpu.md. Not yet compared with a device by this project.
#pragma once

#include <cstdint>
#include <span>

namespace gpu::emulation {

// Which arithmetic the emulated mma has.
enum class Accumulation {
  kFp32,    // products added to the accumulator in ascending k, FP32, each addition rounded to nearest
  kHopper,  // sm_90 mma.sync: 16 products a step, 25 fraction bits (FP16 and BF16 operands)
  kAmpere,  // sm_80, sm_89 mma.sync: 8 products a step, 24 fraction bits
};

// One fused addition of `products_per_step` products and the accumulator.
struct TensorCoreStep {
  int products_per_step;
  int fraction_bits;    // kept of each term, relative to the largest exponent; the rest is cut off toward zero
  int result_bits;      // fraction bits of the result, cut off toward zero
  int lowest_exponent;  // the common exponent is at least this
};

inline constexpr TensorCoreStep kHopper16Bit{16, 25, 23, -133};
inline constexpr TensorCoreStep kAmpere16Bit{8, 24, 23, -132};
inline constexpr TensorCoreStep kHopperWgmmaFp8{32, 13, 13, -133};
inline constexpr TensorCoreStep kAdaMmaFp8{16, 13, 13, -133};

// Formats of operands, for the exponent below which a number counts as subnormal.
enum class OperandFormat { kBf16, kFp16, kE4m3 };

// One step: c + sum of a[i] * b[i], for a.size() == b.size() <= products_per_step. The order of the products does not matter.
// NaN operands, infinity times zero and infinities of both signs give NaN 0x7FFFFFFF.
float tensor_core_step(
    const TensorCoreStep& step, OperandFormat format, std::span<const float> a, std::span<const float> b, float c);

// A longer dot product: steps of products_per_step elements, in ascending order, chained through the accumulator.
float tensor_core_chain(
    const TensorCoreStep& step, OperandFormat format, std::span<const float> a, std::span<const float> b, float c);

}  // namespace gpu::emulation
