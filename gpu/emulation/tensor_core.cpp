#include "gpu/emulation/tensor_core.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "model/check.hpp"

namespace gpu::emulation {
namespace {

// A finite number as integer * 2^exponent; the exponent is that of the binade, not of the integer's last bit.
struct Term {
  int64_t integer = 0;
  int exponent = 0;       // of the leading digit if the number is normal
  int fraction_bits = 0;  // integer has the binary point this far from its right end
};

struct Format {
  int fraction_bits;
  int lowest_exponent;
};

Format format_of(OperandFormat format) {
  switch (format) {
    case OperandFormat::kBf16: return {7, -126};
    case OperandFormat::kFp16: return {10, -14};
    case OperandFormat::kE4m3: return {3, -6};
  }
  return {};
}

// The format's significand and exponent; subnormal numbers have the lowest exponent and a leading 0.
Term split(float value, Format format) {
  if (value == 0) {
    return {};
  }
  const int exponent = std::max(std::ilogb(value), format.lowest_exponent);
  return {static_cast<int64_t>(std::ldexp(static_cast<double>(value), format.fraction_bits - exponent)),
          exponent,
          format.fraction_bits};
}

// floor(|x|) with x's sign for x = integer * 2^shift.
int64_t shift_toward_zero(int64_t integer, int shift) {
  if (shift >= 0) {
    return integer << shift;
  }
  if (shift <= -63) {
    return 0;
  }
  const int64_t magnitude = std::abs(integer) >> -shift;
  return integer < 0 ? -magnitude : magnitude;
}

constexpr int kMaxTerms = 33;
const float kTensorCoreNan = std::bit_cast<float>(0x7FFFFFFFU);

}  // namespace

float tensor_core_step(
    const TensorCoreStep& step, OperandFormat format, std::span<const float> a, std::span<const float> b, float c) {
  CHECK(a.size() == b.size() && static_cast<int>(a.size()) <= step.products_per_step);
  const Format operand = format_of(format);
  std::array<Term, kMaxTerms> terms;
  size_t num_terms = 0;
  bool any_plus = std::isinf(c) && c > 0;
  bool any_minus = std::isinf(c) && c < 0;
  bool any_nan = std::isnan(c);
  for (size_t i = 0; i < a.size(); ++i) {
    const float product = a[i] * b[i];  // only its kind matters here
    if (std::isnan(product)) {
      any_nan = true;
    } else if (std::isinf(a[i]) || std::isinf(b[i])) {
      (product > 0 ? any_plus : any_minus) = true;
    } else if (a[i] != 0 && b[i] != 0) {
      const Term left = split(a[i], operand);
      const Term right = split(b[i], operand);
      // Not normalised: 1.5 * 1.5 = 2.25 keeps exponent 0.
      terms[num_terms++] = {left.integer * right.integer, left.exponent + right.exponent, 2 * operand.fraction_bits};
    }
  }
  if (any_nan || (any_plus && any_minus)) {
    return kTensorCoreNan;
  }
  if (any_plus || any_minus) {
    return any_plus ? HUGE_VALF : -HUGE_VALF;
  }
  if (c != 0) {
    terms[num_terms++] = split(c, {23, -126});
  }
  if (num_terms == 0) {
    return 0;
  }
  int largest = step.lowest_exponent;
  for (size_t i = 0; i < num_terms; ++i) {
    largest = std::max(largest, terms[i].exponent);
  }
  int64_t sum = 0;
  for (size_t i = 0; i < num_terms; ++i) {
    sum +=
        shift_toward_zero(terms[i].integer, terms[i].exponent - largest + step.fraction_bits - terms[i].fraction_bits);
  }
  if (sum == 0) {
    return 0;
  }
  // sum * 2^(largest - fraction_bits), cut off to result_bits.
  const int scale = largest - step.fraction_bits;
  const int exponent = std::max(63 - std::countl_zero(static_cast<uint64_t>(std::abs(sum))) + scale, -126);
  const int last_bit = exponent - step.result_bits;
  const int64_t kept = shift_toward_zero(sum, scale - last_bit);
  return static_cast<float>(std::ldexp(static_cast<double>(kept), last_bit));
}

float tensor_core_chain(
    const TensorCoreStep& step, OperandFormat format, std::span<const float> a, std::span<const float> b, float c) {
  const auto length = static_cast<size_t>(step.products_per_step);
  for (size_t k = 0; k < a.size(); k += length) {
    const size_t count = std::min(length, a.size() - k);
    c = tensor_core_step(step, format, a.subspan(k, count), b.subspan(k, count), c);
  }
  return c;
}

}  // namespace gpu::emulation
