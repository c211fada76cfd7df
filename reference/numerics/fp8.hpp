// FP8 E4M3FN codes and power-of-two (UE8M0) scales.
#pragma once

#include <cstdint>

namespace reference {

// Round to nearest, ties to even, subnormals included, saturating to +-448; NaN -> 0x7F.
// Source: OCP OFP8; spec of the integer form: docs/numerics.md. Exhaustively tested over all 2^32 inputs in the slow label.
uint8_t encode_f8_e4m3(float value);
// The same rounding, as a number.
float round_to_f8_e4m3(float value);

// Smallest power of two >= value, by bits: exponent + (mantissa != 0). value positive and finite; subnormal values give 2^-126,
// values above 2^127 infinity.
// Source: DeepSeek-V3.2-Exp inference/kernel.py fast_round_scale.
float round_up_to_power_of_two(float value);

}  // namespace reference
