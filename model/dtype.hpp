// Number formats a tensor can be stored in, by their safetensors names, and what number a stored code stands for.
// It does not round or encode: that is arithmetic, and each implementation brings its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace model {

enum class DType { kF64, kF32, kBF16, kF16, kF8E4M3, kF8E8M0, kI64, kI32, kU8 };

// "F64", "F32", "BF16", "F16", "F8_E4M3", "F8_E8M0", "I64", "I32", "U8".
std::string_view dtype_name(DType dtype);
// Empty when the name is not one of the above.
std::optional<DType> parse_dtype(std::string_view name);
int64_t dtype_bytes(DType dtype);

// The number that one stored element stands for. E4M3FN: bias 7, 0x7F and 0xFF are NaN, no infinity.
// E8M0: 2^(code - 127), 0xFF is NaN. Source: OCP OFP8 and MX specifications.
double decode(DType dtype, const std::byte* element);
// Decoders of single codes, for inner loops. Exact.
float decode_bf16(uint16_t bits);
float decode_f8_e4m3(uint8_t code);
float decode_f8_e8m0(uint8_t code);

}  // namespace model
