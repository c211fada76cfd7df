#include "model/dtype.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "model/check.hpp"

namespace model {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array kDTypes{
    DTypeInfo{DType::kF64, "F64", 8},
    DTypeInfo{DType::kF32, "F32", 4},
    DTypeInfo{DType::kBF16, "BF16", 2},
    DTypeInfo{DType::kF16, "F16", 2},
    DTypeInfo{DType::kF8E4M3, "F8_E4M3", 1},
    DTypeInfo{DType::kF8E8M0, "F8_E8M0", 1},
    DTypeInfo{DType::kI64, "I64", 8},
    DTypeInfo{DType::kI32, "I32", 4},
    DTypeInfo{DType::kU8, "U8", 1},
};

const DTypeInfo& info(DType dtype) {
  for (const DTypeInfo& candidate : kDTypes) {
    if (candidate.dtype == dtype) {
      return candidate;
    }
  }
  throw_check_error(__FILE__, __LINE__, "unknown dtype");
}

template <typename T>
T load(const std::byte* element) {
  T value;
  std::memcpy(&value, element, sizeof(T));
  return value;
}

float decode_f16(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int fraction = bits & 0x3FF;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 0x1F) {
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25));
}

std::array<float, 256> make_f8_e4m3_table() {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 0xF;
    const int fraction = code & 7;
    const float sign = code >= 128 ? -1.0f : 1.0f;
    if (exponent == 15 && fraction == 7) {
      table[code] = std::numeric_limits<float>::quiet_NaN();
    } else if (exponent == 0) {
      table[code] = sign * std::ldexp(static_cast<float>(fraction), -9);
    } else {
      table[code] = sign * std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
    }
  }
  return table;
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  return info(dtype).name;
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeInfo& candidate : kDTypes) {
    if (candidate.name == name) {
      return candidate.dtype;
    }
  }
  return std::nullopt;
}

int64_t dtype_bytes(DType dtype) {
  return info(dtype).bytes;
}

float decode_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

float decode_f8_e4m3(uint8_t code) {
  static const std::array<float, 256> table = make_f8_e4m3_table();
  return table[code];
}

float decode_f8_e8m0(uint8_t code) {
  if (code == 0xFF) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return std::ldexp(1.0f, static_cast<int>(code) - 127);
}

double decode(DType dtype, const std::byte* element) {
  switch (dtype) {
    case DType::kF64: return load<double>(element);
    case DType::kF32: return load<float>(element);
    case DType::kBF16: return decode_bf16(load<uint16_t>(element));
    case DType::kF16: return decode_f16(load<uint16_t>(element));
    case DType::kF8E4M3: return decode_f8_e4m3(load<uint8_t>(element));
    case DType::kF8E8M0: return decode_f8_e8m0(load<uint8_t>(element));
    case DType::kI64: return static_cast<double>(load<int64_t>(element));
    case DType::kI32: return load<int32_t>(element);
    case DType::kU8: return load<uint8_t>(element);
  }
  throw_check_error(__FILE__, __LINE__, "unknown dtype");
}

}  // namespace model
