#include "golden/metrics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "model/check.hpp"

namespace golden {
namespace {

struct FloatFormat {
  int mantissa_bits;
  int min_exponent;  // of the smallest normal number
};

// Empty for integers and for F64, whose steps do not fit the arithmetic below.
std::optional<FloatFormat> float_format(model::DType dtype) {
  switch (dtype) {
    case model::DType::kF32: return FloatFormat{.mantissa_bits = 23, .min_exponent = -126};
    case model::DType::kBF16: return FloatFormat{.mantissa_bits = 7, .min_exponent = -126};
    case model::DType::kF16: return FloatFormat{.mantissa_bits = 10, .min_exponent = -14};
    case model::DType::kF8E4M3: return FloatFormat{.mantissa_bits = 3, .min_exponent = -6};
    case model::DType::kF8E8M0: return FloatFormat{.mantissa_bits = 0, .min_exponent = -127};
    case model::DType::kF64:
    case model::DType::kI64:
    case model::DType::kI32:
    case model::DType::kU8: return std::nullopt;
  }
  return std::nullopt;
}

// How many steps of the format lie between zero and the value, signed. In a binade of exponent e there are 2^m steps of 2^(e-m);
// below the normal numbers the steps keep the size of the first binade. Exact for values the format can hold.
double steps_from_zero(double value, const FloatFormat& format) {
  if (value == 0) {
    return 0;
  }
  const double magnitude = std::fabs(value);
  const int exponent = std::max(std::ilogb(magnitude), format.min_exponent);
  const double in_binade = std::ldexp(magnitude, format.mantissa_bits - exponent);
  const double below = std::ldexp(static_cast<double>(exponent - format.min_exponent), format.mantissa_bits);
  return std::copysign(below + in_binade, value);
}

// The bits of a double, reordered so that neighbouring doubles are neighbouring integers.
int64_t ordered_bits(double value) {
  const auto bits = std::bit_cast<int64_t>(value);
  return bits >= 0 ? bits : std::numeric_limits<int64_t>::min() - bits;
}

bool same_bits(double x, double y) {
  return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y) || (std::isnan(x) && std::isnan(y));
}

}  // namespace

double ulp_distance(double a, double b, model::DType dtype) {
  if (const auto format = float_format(dtype)) {
    return std::fabs(steps_from_zero(a, *format) - steps_from_zero(b, *format));
  }
  if (dtype == model::DType::kF64) {
    // As doubles: the distance can exceed int64. Neighbours differ exactly, far ones need no last digit.
    const int64_t first = ordered_bits(a);
    const int64_t second = ordered_bits(b);
    const bool same_side = (first < 0) == (second < 0);
    return std::fabs(same_side ? static_cast<double>(first - second)
                               : static_cast<double>(first) - static_cast<double>(second));
  }
  return std::fabs(a - b);
}

Metrics compare_values(std::span<const double> expected, std::span<const double> got, model::DType storage) {
  CHECK_EQ(expected.size(), got.size());
  Metrics result{.num_elements = static_cast<int64_t>(expected.size())};
  int64_t num_equal = 0;
  int64_t first_mismatch = -1;
  double xx = 0;
  double yy = 0;
  double xy = 0;
  double dd = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double x = expected[i];
    const double y = got[i];
    num_equal += same_bits(x, y) ? 1 : 0;
    if (!std::isfinite(x) || !std::isfinite(y)) {
      const bool nan_mismatch = std::isnan(x) != std::isnan(y);
      const bool inf_mismatch = !nan_mismatch && !same_bits(x, y);
      result.nan_mismatches += nan_mismatch ? 1 : 0;
      result.inf_mismatches += inf_mismatch ? 1 : 0;
      if (first_mismatch < 0 && (nan_mismatch || inf_mismatch)) {
        first_mismatch = static_cast<int64_t>(i);
      }
      continue;
    }
    const double difference = std::fabs(x - y);
    if (difference > result.max_abs) {
      result.max_abs = difference;
      result.worst_index = static_cast<int64_t>(i);
    }
    result.max_ulp = std::max(result.max_ulp, ulp_distance(x, y, storage));
    xx += x * x;
    yy += y * y;
    xy += x * y;
    dd += difference * difference;
  }
  if (first_mismatch >= 0) {
    result.worst_index = first_mismatch;
  }
  if (!expected.empty()) {
    result.equal_frac = static_cast<double>(num_equal) / static_cast<double>(expected.size());
  }
  if (xx > 0 || yy > 0) {
    result.cosine = xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
    result.calc_diff = dd / (xx + yy);  // the form without cancellation
    result.relative_l2 = xx > 0 ? std::sqrt(dd) / std::sqrt(xx) : std::numeric_limits<double>::infinity();
  }
  return result;
}

}  // namespace golden
