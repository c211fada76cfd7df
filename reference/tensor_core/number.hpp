// The number formats that tensor cores read and write, taken apart into integers. No rounding happens here.
#pragma once

#include <cstdint>
#include <string_view>

namespace reference::tensor_core {

// Operand formats; kTf32 is an FP32 word of which the unit reads the upper 19 bits. kFp32 is the format of accumulators.
enum class Format { kBf16, kFp16, kTf32, kE4m3, kE5m2, kE4m3Fnuz, kE5m2Fnuz, kFp32 };

// "bf16", "fp16", "tf32", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "fp32". parse_format throws InputError.
std::string_view format_name(Format format);
Format parse_format(std::string_view name);

// How many bits a code of the format has in memory (TF32: 32).
int code_bits(Format format);
int fraction_bits(Format format);
// Exponent of the smallest normal number: subnormal numbers have it too.
int smallest_exponent(Format format);

// value = (negative ? -1 : 1) * mantissa * 2^(exponent - fraction_bits(format)). A subnormal number keeps the smallest exponent and
// a smaller mantissa. mantissa is 0 for zeros, infinities and NaN.
struct Number {
  enum class Kind : uint8_t { kFinite, kInfinite, kNan };
  Kind kind = Kind::kFinite;
  bool negative = false;
  int32_t mantissa = 0;
  int32_t exponent = 0;

  [[nodiscard]] bool is_zero() const { return kind == Kind::kFinite && mantissa == 0; }
};

// Bits above code_bits(format) are ignored.
Number unpack(Format format, uint32_t code);

}  // namespace reference::tensor_core
