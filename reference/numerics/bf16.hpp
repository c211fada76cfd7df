// BF16 (1 sign, 8 exponent, 7 fraction bits): rounding and encoding. Decoding is model/dtype.hpp.
#pragma once

#include <cstdint>

namespace reference {

// Round to nearest, ties to even. NaN stays a quiet NaN; overflow gives infinity; subnormals are kept.
uint16_t encode_bf16(float value);
// The same rounding, as a number. The named cast "float -> BF16 value".
float round_to_bf16(float value);

}  // namespace reference
