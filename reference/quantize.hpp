// Activation quantisation: 1x128 blocks along the last dimension, one scale each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/rules.hpp"

namespace reference {

struct QuantizedRow {
  std::vector<float> codes;   // [in] E4M3 values, as numbers
  std::vector<float> scales;  // [ceil(in / 128)]; real value = code * scale
};

// Scale of a block from its largest magnitude. Source: act_quant in DeepSeek-V3(.2-Exp) inference/kernel.py: amax is at least
// 1e-4; then the rule's formula; UE8M0 rounds up to a power of two by bits.
float activation_scale(const QuantizeRule& rule, float amax);
// What an element is multiplied with (or divided by) to get its code: found once for a block.
struct BlockScale {
  float scale = 1;   // real value = code * scale
  float factor = 1;  // of the multiplying formulas
};
BlockScale block_scale(const QuantizeRule& rule, float amax);
// Code of one element: E4M3(clamp(x / s)), or of the product by the rule's formula.
float activation_code(const QuantizeRule& rule, float x, const BlockScale& block);

// c as FlashMLA's FP8 cache holds it: blocks of 128, scale 2^ceil(log2(max(amax / 448, 1e-4))), codes E4M3, back as BF16 (`half`).
// Source: FlashMLA tests/quant.py. In place. Exact arithmetic on its input but for the two roundings.
void round_trip_fp8_cache(std::span<float> c, model::DType half = model::DType::kBF16);

// One block (at most 128 elements): writes the codes as numbers and returns the scale. NaN in it gives NaN codes and a NaN scale.
float quantize_block(const QuantizeRule& rule, std::span<const float> x, std::span<float> codes);
// A ragged last block is quantised by its own elements. NaN in a block gives NaN codes in that block.
QuantizedRow quantize_row(const QuantizeRule& rule, std::span<const float> x);

}  // namespace reference
