#include "reference/quantize.hpp"

#include <algorithm>
#include <cmath>

#include "reference/numerics/fp8.hpp"
#include "reference/numerics/reduce.hpp"

namespace reference {

float activation_scale(const QuantizeRule& rule, float amax) {
  constexpr float kMax = 448.0f;
  const float clamped = std::max(amax, 1e-4f);
  const float scale = rule.scale == ScaleFormula::kTimesReciprocal ? clamped * (1.0f / kMax) : clamped / kMax;
  return rule.format == model::ScaleFormat::kUe8m0 ? round_up_to_power_of_two(scale) : scale;
}

float activation_code(const QuantizeRule& rule, float x, float scale) {
  return round_to_f8_e4m3(rule.code == CodeFormula::kDivide ? x / scale : x * (1.0f / scale));
}

QuantizedRow quantize_row(const QuantizeRule& rule, std::span<const float> x) {
  QuantizedRow row;
  row.codes.reserve(x.size());
  for (size_t begin = 0; begin < x.size(); begin += kBlockLen) {
    const auto block = x.subspan(begin, std::min<size_t>(kBlockLen, x.size() - begin));
    float amax = 0;
    for (const float value : block) {
      amax = std::max(amax, std::abs(value));
    }
    const float scale = activation_scale(rule, amax);
    row.scales.push_back(scale);
    for (const float value : block) {
      row.codes.push_back(activation_code(rule, value, scale));
    }
  }
  return row;
}

}  // namespace reference
