#include "reference/tensor_core/step.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "model/check.hpp"

namespace reference::tensor_core {
namespace {

constexpr int kMaxTerms = 65;

// value = significand * 2^(exponent - fraction_bits)
struct Term {
  int64_t significand;
  int exponent;
  int fraction_bits;
};

uint32_t nan_of(Format out) {
  return out == Format::kFp16 ? kNanFp16 : kNanFp32;
}

uint32_t infinity_of(Format out, bool negative) {
  return out == Format::kFp16 ? (negative ? 0xFC00 : 0x7C00) : (negative ? 0xFF800000 : 0x7F800000);
}

// value / 2^shift as an integer.
int64_t shift_right(int64_t value, int shift, Rounding rounding) {
  if (shift <= 0) {
    return value << -shift;
  }
  const bool negative = value < 0;
  const uint64_t magnitude = static_cast<uint64_t>(negative ? -value : value);
  const uint64_t quotient = shift > 63 ? 0 : magnitude >> shift;
  const uint64_t rest = shift > 63 ? magnitude : magnitude - (quotient << shift);
  uint64_t rounded = quotient;
  switch (rounding) {
    case Rounding::kTowardZero: break;
    case Rounding::kDown: rounded += (negative && rest != 0) ? 1 : 0; break;
    case Rounding::kNearestEven:
      if (shift <= 63) {
        const uint64_t half = uint64_t{1} << (shift - 1);
        rounded += (rest > half || (rest == half && (quotient & 1) != 0)) ? 1 : 0;
      }
  }
  return negative ? -static_cast<int64_t>(rounded) : static_cast<int64_t>(rounded);
}

// sum * 2^unit as a code of `out`.
uint32_t round_result(int64_t sum, int unit, int result_bits, Rounding rounding, Format out) {
  if (sum == 0) {
    return 0;
  }
  const bool negative = sum < 0;
  const int num_bits = std::bit_width(static_cast<uint64_t>(negative ? -sum : sum));
  const int exponent = std::max(unit + num_bits - 1, smallest_exponent(out));
  const int last_place = exponent - result_bits;
  const int64_t digits = shift_right(sum, last_place - unit, rounding);
  const double value = std::ldexp(static_cast<double>(digits), last_place);  // exact: at most 25 bits
  const double limit = std::ldexp(1.0, out == Format::kFp16 ? 16 : 128);
  if (std::abs(value) >= limit) {
    return infinity_of(out, negative);
  }
  if (out == Format::kFp32) {
    return digits == 0 ? 0 : std::bit_cast<uint32_t>(static_cast<float>(value));
  }
  // FP16: the digits are the significand at the last place, or the subnormal itself.
  const auto magnitude = static_cast<uint32_t>(negative ? -digits : digits);
  const auto field = static_cast<uint32_t>(exponent - smallest_exponent(out));
  return ((negative && magnitude != 0) ? 0x8000u : 0u) + (field << fraction_bits(out)) + magnitude;
}

struct Specials {
  bool nan = false;
  bool positive = false;
  bool negative = false;

  void add_infinity(bool is_negative) { (is_negative ? negative : positive) = true; }
};

Specials specials_of(Format format, std::span<const uint32_t> a, std::span<const uint32_t> b, const Number& c) {
  Specials found;
  using Kind = Number::Kind;
  for (size_t i = 0; i < a.size(); ++i) {
    const Number x = unpack(format, a[i]);
    const Number y = unpack(format, b[i]);
    if (x.kind == Kind::kNan || y.kind == Kind::kNan) {
      found.nan = true;
    } else if (x.kind == Kind::kInfinite || y.kind == Kind::kInfinite) {
      found.nan = found.nan || x.is_zero() || y.is_zero();
      found.add_infinity(x.negative != y.negative);
    }
  }
  found.nan = found.nan || c.kind == Kind::kNan;
  if (c.kind == Kind::kInfinite) {
    found.add_infinity(c.negative);
  }
  found.nan = found.nan || (found.positive && found.negative);
  return found;
}

void check_step(const StepRule& rule, std::span<const uint32_t> a, std::span<const uint32_t> b, Format out) {
  CHECK(rule.num_products >= 1 && rule.num_products < kMaxTerms);
  CHECK(rule.align_bits >= 1 && rule.align_bits <= 48);
  CHECK(rule.result_bits >= 1 && rule.result_bits <= 23);
  CHECK(static_cast<int>(a.size()) <= rule.num_products);
  CHECK_EQ(a.size(), b.size());
  CHECK(out == Format::kFp32 || out == Format::kFp16);
}

struct Out {
  int result_bits;
  Rounding rounding;
};

Out out_of(const StepRule& rule, Format out) {
  return out == Format::kFp16 ? Out{fraction_bits(out), Rounding::kNearestEven} : Out{rule.result_bits, rule.result};
}

}  // namespace

uint32_t tc_step(const StepRule& rule,
                 Format format,
                 std::span<const uint32_t> a,
                 std::span<const uint32_t> b,
                 uint32_t c_code,
                 Format out) {
  check_step(rule, a, b, out);
  const Number c = unpack(out, c_code);
  const Specials specials = specials_of(format, a, b, c);
  if (specials.nan) {
    return nan_of(out);
  }
  if (specials.positive || specials.negative) {
    return infinity_of(out, specials.negative);
  }
  std::array<Term, kMaxTerms> terms;
  int num_terms = 0;
  int largest = smallest_exponent(out) - rule.floor_below;
  const auto add_term = [&](bool negative, int64_t magnitude, int exponent, int fraction) {
    if (magnitude != 0) {
      terms[static_cast<size_t>(num_terms++)] = {negative ? -magnitude : magnitude, exponent, fraction};
      largest = std::max(largest, exponent);
    }
  };
  for (size_t i = 0; i < a.size(); ++i) {
    const Number x = unpack(format, a[i]);
    const Number y = unpack(format, b[i]);
    add_term(
        x.negative != y.negative, int64_t{x.mantissa} * y.mantissa, x.exponent + y.exponent, 2 * fraction_bits(format));
  }
  add_term(c.negative, c.mantissa, c.exponent, fraction_bits(out));
  int64_t sum = 0;
  for (int i = 0; i < num_terms; ++i) {
    const Term& term = terms[static_cast<size_t>(i)];
    const int shift = (largest - rule.align_bits) - (term.exponent - term.fraction_bits);
    sum += shift_right(term.significand, shift, rule.align);
  }
  const Out result = out_of(rule, out);
  return round_result(sum, largest - rule.align_bits, result.result_bits, result.rounding, out);
}

uint32_t tc_step_float(const StepRule& rule,
                       Format format,
                       std::span<const uint32_t> a,
                       std::span<const uint32_t> b,
                       uint32_t c_code,
                       Format out) {
  check_step(rule, a, b, out);
  // Far from both ends of double, scaled terms and sums are exact and no result overflows.
  constexpr int kSafeExponent = 100;
  std::array<double, kMaxTerms> terms;
  size_t num_terms = 0;
  int largest = smallest_exponent(out) - rule.floor_below;
  bool finite = rule.align == Rounding::kTowardZero && rule.align_bits <= 40;
  const auto value_of = [&](const Number& x, Format f) {
    finite = finite && x.kind == Number::Kind::kFinite;
    return std::ldexp(x.negative ? -static_cast<double>(x.mantissa) : static_cast<double>(x.mantissa),
                      x.exponent - fraction_bits(f));
  };
  const auto add_term = [&](double value, int exponent) {
    terms[num_terms++] = value;
    if (value != 0) {
      largest = std::max(largest, exponent);
    }
  };
  for (size_t i = 0; i < a.size(); ++i) {
    const Number x = unpack(format, a[i]);
    const Number y = unpack(format, b[i]);
    add_term(value_of(x, format) * value_of(y, format), x.exponent + y.exponent);
  }
  const Number c = unpack(out, c_code);
  add_term(value_of(c, out), c.exponent);
  if (!finite || largest > kSafeExponent) {
    return tc_step(rule, format, a, b, c_code, out);
  }
  const double scale = std::ldexp(1.0, rule.align_bits - largest);
  int64_t sum = 0;
  for (size_t i = 0; i < num_terms; ++i) {
    sum += static_cast<int64_t>(terms[i] * scale);  // cuts toward zero
  }
  const Out result = out_of(rule, out);
  return round_result(sum, largest - rule.align_bits, result.result_bits, result.rounding, out);
}

}  // namespace reference::tensor_core
