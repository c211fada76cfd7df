#include "reference/quantize.hpp"

#include <algorithm>

#include "model/check.hpp"
#include "reference/half.hpp"
#include "reference/numerics/fp8.hpp"
#include "reference/numerics/reduce.hpp"
#include "reference/simd/kernels.hpp"

namespace reference {

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

void round_trip_fp8_cache(std::span<float> c, model::DType half) {
  for (size_t begin = 0; begin < c.size(); begin += kBlockLen) {
    const auto block = c.subspan(begin, std::min<size_t>(kBlockLen, c.size() - begin));
    const float amax = simd::kernels().largest_magnitude(block.data(), static_cast<int64_t>(block.size()));
    const float scale = round_up_to_power_of_two(std::max(amax / 448.0f, 1e-4f));
    for (float& value : block) {
      value = round_to_half(half, round_to_f8_e4m3(value / scale) * scale);
    }
  }
}

float quantize_block(const QuantizeRule& rule, std::span<const float> x, std::span<float> codes) {
  CHECK_EQ(x.size(), codes.size());
  const auto len = static_cast<int64_t>(x.size());
  const auto& kernels = simd::kernels();
  const BlockScale found = block_scale(rule, kernels.largest_magnitude(x.data(), len));
  if (rule.code == CodeFormula::kDivide) {
    kernels.quotients_to_e4m3(x.data(), len, found.scale, codes.data());
  } else {
    kernels.products_to_e4m3(x.data(), len, found.factor, codes.data());
  }
  return found.scale;
}

QuantizedRow quantize_row(const QuantizeRule& rule, std::span<const float> x) {
  QuantizedRow row;
  row.codes.resize(x.size());
  for (size_t begin = 0; begin < x.size(); begin += kBlockLen) {
    const size_t len = std::min<size_t>(kBlockLen, x.size() - begin);
    row.scales.push_back(quantize_block(rule, x.subspan(begin, len), std::span<float>(row.codes).subspan(begin, len)));
  }
  return row;
}

}  // namespace reference
