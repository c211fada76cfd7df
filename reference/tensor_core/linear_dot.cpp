#include "reference/tensor_core/linear_dot.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "model/check.hpp"

namespace reference::tensor_core {
namespace {

constexpr size_t kScaleLen = 128;

}  // namespace

float promote(Promotion::Form form, float t, float a_scale, float b_scale, float f) {
  switch (form) {
    case Promotion::Form::kFusedScalesFirst: return std::fma(a_scale * b_scale, t, f);
    case Promotion::Form::kSeparateScalesFirst: return f + (a_scale * b_scale) * t;
    case Promotion::Form::kFusedActivationFirst: return std::fma(t * a_scale, b_scale, f);
    case Promotion::Form::kSeparateActivationFirst: return f + (t * a_scale) * b_scale;
  }
  return f;
}

float fp8_linear_dot(const Recipe& recipe,
                     const Path& path,
                     Format format,
                     std::span<const uint32_t> a,
                     std::span<const uint32_t> b,
                     std::span<const float> a_scale,
                     std::span<const float> b_scale) {
  CHECK_EQ(a.size(), b.size());
  CHECK_EQ(a_scale.size(), (a.size() + kScaleLen - 1) / kScaleLen);
  CHECK_EQ(b_scale.size(), a_scale.size());
  const auto every = static_cast<size_t>(recipe.promotion.every);
  float f = 0;
  for (size_t begin = 0; begin < a.size(); begin += every) {
    const size_t len = std::min(every, a.size() - begin);
    const uint32_t t = path_dot(path, format, a.subspan(begin, len), b.subspan(begin, len), 0);
    const size_t block = begin / kScaleLen;
    f = promote(recipe.promotion.form, std::bit_cast<float>(t), a_scale[block], b_scale[block], f);
  }
  return f;
}

float linear_dot(
    const Recipe& recipe, const Path& path, Format format, std::span<const uint32_t> a, std::span<const uint32_t> b) {
  CHECK_EQ(a.size(), b.size());
  const auto step_len = static_cast<size_t>(path.step.num_products);
  const size_t num_steps = (a.size() + step_len - 1) / step_len;
  const auto num_splits = static_cast<size_t>(recipe.chunks.num_splits);
  const size_t steps_per_split = (num_steps + num_splits - 1) / num_splits;
  float sum = 0;
  for (size_t first = 0; first < num_steps; first += steps_per_split) {
    const size_t count = std::min(steps_per_split, num_steps - first);
    uint32_t part = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t begin = (first + (recipe.chunks.descending ? count - 1 - i : i)) * step_len;
      const size_t len = std::min(step_len, a.size() - begin);
      part = path_dot(path, format, a.subspan(begin, len), b.subspan(begin, len), part);
    }
    sum = first == 0 ? std::bit_cast<float>(part) : sum + std::bit_cast<float>(part);
  }
  return sum;
}

}  // namespace reference::tensor_core
