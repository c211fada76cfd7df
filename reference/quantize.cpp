#include "reference/quantize.hpp"

#include <algorithm>
#include <cmath>

#include "reference/numerics/bf16.hpp"
#include "reference/numerics/fp8.hpp"
#include "reference/numerics/reduce.hpp"

namespace reference {

namespace {

// NaN if any element is NaN, so that it cannot hide behind a larger neighbour.
float largest_magnitude(std::span<const float> block) {
  float amax = 0;
  for (const float value : block) {
    if (std::isnan(value)) {
      return value;
    }
    amax = std::max(amax, std::abs(value));
  }
  return amax;
}

}  // namespace

float activation_scale(const QuantizeRule& rule, float amax) {
  constexpr float kMax = 448.0f;
  const float clamped = std::max(amax, 1e-4f);
  const float scale = rule.scale == ScaleFormula::kTimesReciprocal ? clamped * (1.0f / kMax) : clamped / kMax;
  return rule.format == model::ScaleFormat::kUe8m0 ? round_up_to_power_of_two(scale) : scale;
}

BlockScale block_scale(const QuantizeRule& rule, float amax) {
  const float scale = activation_scale(rule, amax);
  // With a power-of-two scale every formula divides by it exactly.
  const bool from_amax = rule.code == CodeFormula::kTimesMaxOverAmax && rule.format == model::ScaleFormat::kFp32;
  return {scale, from_amax ? 448.0f / std::max(amax, 1e-4f) : 1.0f / scale};
}

float activation_code(const QuantizeRule& rule, float x, const BlockScale& block) {
  return round_to_f8_e4m3(rule.code == CodeFormula::kDivide ? x / block.scale : x * block.factor);
}

void round_trip_fp8_cache(std::span<float> c) {
  for (size_t begin = 0; begin < c.size(); begin += kBlockLen) {
    const auto block = c.subspan(begin, std::min<size_t>(kBlockLen, c.size() - begin));
    const float scale = round_up_to_power_of_two(std::max(largest_magnitude(block) / 448.0f, 1e-4f));
    for (float& value : block) {
      value = round_to_bf16(round_to_f8_e4m3(value / scale) * scale);
    }
  }
}

QuantizedRow quantize_row(const QuantizeRule& rule, std::span<const float> x) {
  QuantizedRow row;
  row.codes.reserve(x.size());
  for (size_t begin = 0; begin < x.size(); begin += kBlockLen) {
    const auto block = x.subspan(begin, std::min<size_t>(kBlockLen, x.size() - begin));
    const BlockScale found = block_scale(rule, largest_magnitude(block));
    row.scales.push_back(found.scale);
    for (const float value : block) {
      row.codes.push_back(activation_code(rule, value, found));
    }
  }
  return row;
}

}  // namespace reference
