// FP16 (1 sign, 5 exponent, 10 fraction bits): rounding, encoding, and the number of a code.
#pragma once

#include <cstdint>

namespace reference {

// Round to nearest, ties to even. NaN stays a quiet NaN; overflow, from 65520 on, gives infinity; subnormals are kept.
uint16_t encode_fp16(float value);
// The same rounding, as a number.
float round_to_fp16(float value);
// Exact.
float decode_fp16(uint16_t code);

}  // namespace reference
