// One rounding from double: scale so that the target's step becomes 1, round to an integer, scale back. Both scalings are exact.
#include "reference/numerics/round.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "model/check.hpp"

namespace reference {
namespace {

struct Format {
  int fraction_bits;
  int min_exponent;  // of the normal numbers; subnormals share its step
  int max_exponent;
  double max_finite;
  double overflow;  // what rounding beyond max_finite gives
};

constexpr double kInf = std::numeric_limits<double>::infinity();

Format format_of(model::DType dtype) {
  switch (dtype) {
    case model::DType::kF64: return {52, -1022, 1023, std::numeric_limits<double>::max(), kInf};
    case model::DType::kF32: return {23, -126, 127, 0x1.fffffep127, kInf};
    case model::DType::kBF16: return {7, -126, 127, 0x1.fep127, kInf};
    case model::DType::kF16: return {10, -14, 15, 65504.0, kInf};
    case model::DType::kF8E4M3: return {3, -6, 8, 448.0, 448.0};
    default: break;
  }
  model::throw_check_error(
      __FILE__,
      __LINE__,
      fmt::format("no rounding to {}; F64, F32, BF16, F16 or F8_E4M3 expected", model::dtype_name(dtype)));
}

// Exponent field, unbiased: -1023 for zero and subnormals, 1024 for infinity and NaN.
int exponent_of(double value) {
  return static_cast<int>((std::bit_cast<uint64_t>(value) >> 52) & 0x7FF) - 1023;
}

int step_exponent(const Format& format, double value) {
  return std::max(exponent_of(value), format.min_exponent) - format.fraction_bits;
}

}  // namespace

double round_to_format(model::DType dtype, double value) {
  const Format format = format_of(dtype);
  if (dtype == model::DType::kF64 || !std::isfinite(value)) {
    return std::isinf(value) ? std::copysign(format.overflow, value) : value;
  }
  const double step = std::ldexp(1.0, step_exponent(format, value));
  const double rounded = std::nearbyint(value / step) * step;
  return std::abs(rounded) > format.max_finite ? std::copysign(format.overflow, value) : rounded;
}

double ulp_in_format(model::DType dtype, double value) {
  const Format format = format_of(dtype);
  if (std::isnan(value)) {
    return value;
  }
  return std::ldexp(1.0, std::min(step_exponent(format, value), format.max_exponent - format.fraction_bits));
}

}  // namespace reference
