#include "reference/tensor_core/number.hpp"

#include <array>

#include "model/check.hpp"

namespace reference::tensor_core {
namespace {

// What the largest exponent field means.
enum class Specials {
  kIeee,  // infinity and NaN
  kFn,    // numbers, and NaN where the fraction is all ones (OCP E4M3)
  kFnuz,  // numbers; the code of minus zero is the only NaN (AMD CDNA3)
};

struct Layout {
  Format format;
  std::string_view name;
  int exponent_bits;
  int fraction_bits;
  int bias;
  Specials specials;
  int dropped_bits = 0;  // below the fraction
};

constexpr std::array kLayouts{
    Layout{Format::kBf16, "bf16", 8, 7, 127, Specials::kIeee},
    Layout{Format::kFp16, "fp16", 5, 10, 15, Specials::kIeee},
    Layout{Format::kTf32, "tf32", 8, 10, 127, Specials::kIeee, 13},
    Layout{Format::kE4m3, "e4m3", 4, 3, 7, Specials::kFn},
    Layout{Format::kE5m2, "e5m2", 5, 2, 15, Specials::kIeee},
    Layout{Format::kE4m3Fnuz, "e4m3fnuz", 4, 3, 8, Specials::kFnuz},
    Layout{Format::kE5m2Fnuz, "e5m2fnuz", 5, 2, 16, Specials::kFnuz},
    Layout{Format::kFp32, "fp32", 8, 23, 127, Specials::kIeee},
};

const Layout& layout_of(Format format) {
  return kLayouts[static_cast<size_t>(format)];
}

}  // namespace

std::string_view format_name(Format format) {
  return layout_of(format).name;
}

Format parse_format(std::string_view name) {
  for (const Layout& layout : kLayouts) {
    if (layout.name == name) {
      return layout.format;
    }
  }
  model::throw_input_error("{}: not a number format of tensor cores", name);
}

int code_bits(Format format) {
  const Layout& layout = layout_of(format);
  return 1 + layout.exponent_bits + layout.fraction_bits + layout.dropped_bits;
}

int fraction_bits(Format format) {
  return layout_of(format).fraction_bits;
}

int smallest_exponent(Format format) {
  return 1 - layout_of(format).bias;
}

Number unpack(Format format, uint32_t code) {
  const Layout& layout = layout_of(format);
  const uint32_t bits = code >> layout.dropped_bits;
  const uint32_t fraction_mask = (1u << layout.fraction_bits) - 1;
  const uint32_t exponent_mask = (1u << layout.exponent_bits) - 1;
  const uint32_t fraction = bits & fraction_mask;
  const uint32_t field = (bits >> layout.fraction_bits) & exponent_mask;
  Number number{.negative = ((bits >> (layout.fraction_bits + layout.exponent_bits)) & 1) != 0};
  const bool largest = field == exponent_mask;
  if (layout.specials == Specials::kIeee && largest) {
    number.kind = fraction == 0 ? Number::Kind::kInfinite : Number::Kind::kNan;
  } else if (layout.specials == Specials::kFn && largest && fraction == fraction_mask) {
    number.kind = Number::Kind::kNan;
  } else if (layout.specials == Specials::kFnuz && number.negative && field == 0 && fraction == 0) {
    number.kind = Number::Kind::kNan;
  } else {
    number.mantissa = static_cast<int32_t>(fraction | (field == 0 ? 0 : fraction_mask + 1));
    number.exponent = static_cast<int32_t>(field == 0 ? 1 : field) - layout.bias;
  }
  return number;
}

}  // namespace reference::tensor_core
