#include "reference/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "reference/numerics/functions.hpp"

namespace reference {
namespace {

double magnitude(const model::YarnConfig& yarn, double mscale) {
  return yarn.factor <= 1 ? 1.0 : 0.1 * mscale * log_f64(yarn.factor) + 1.0;
}

// Dimension whose wavelength makes `num_rotations` turns within the original context.
double correction_dim(double num_rotations, double dim, double base, double original_len) {
  return dim * log_f64(original_len / (num_rotations * 2 * std::numbers::pi)) / (2 * log_f64(base));
}

// 0 where the original frequency is kept, 1 where it is divided by the factor. [dim / 2]
std::vector<float> ramp(const model::YarnConfig& yarn, int64_t dim, double base) {
  const auto original_len = static_cast<double>(yarn.original_max_position_embeddings);
  const double d = static_cast<double>(dim);
  const double low = std::max(std::floor(correction_dim(yarn.beta_fast, d, base, original_len)), 0.0);
  double high = std::min(std::ceil(correction_dim(yarn.beta_slow, d, base, original_len)), d - 1);
  if (low == high) {
    high += 0.001;
  }
  std::vector<float> values;
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float linear = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    values.push_back(std::clamp(linear, 0.0f, 1.0f));
  }
  return values;
}

}  // namespace

std::vector<float> inverse_frequencies(const model::ModelConfig& config, FrequencyOrder order) {
  const int64_t dim = config.qk_rope_head_dim;
  std::vector<float> powers;
  std::vector<float> frequencies;
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    powers.push_back(static_cast<float>(pow_f64(static_cast<double>(static_cast<float>(config.rope_theta)), exponent)));
    frequencies.push_back(1.0f / powers.back());
  }
  if (!config.yarn) {
    return frequencies;
  }
  const auto factor = static_cast<float>(config.yarn->factor);
  const auto scaled = ramp(*config.yarn, dim, config.rope_theta);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float kept = 1.0f - scaled[i];
    if (order == FrequencyOrder::kOfficial) {
      frequencies[i] = frequencies[i] / factor * (1.0f - kept) + frequencies[i] * kept;
    } else {
      frequencies[i] = 1.0f / (factor * powers[i]) * (1.0f - kept) + frequencies[i] * kept;
    }
  }
  return frequencies;
}

namespace {

void rotate(const model::ModelConfig& config,
            std::span<const float> frequencies,
            int64_t position,
            std::span<Rotation> result) {
  const double scale =
      config.yarn ? magnitude(*config.yarn, config.yarn->mscale) / magnitude(*config.yarn, config.yarn->mscale_all_dim)
                  : 1.0;
  const auto scale_f32 = static_cast<float>(scale);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    result[i] = {.cos = cos_f32(angle) * scale_f32, .sin = sin_f32(angle) * scale_f32};
  }
}

}  // namespace

std::vector<Rotation> rotations(const model::ModelConfig& config,
                                const std::vector<float>& frequencies,
                                int64_t position) {
  std::vector<Rotation> result(frequencies.size());
  rotate(config, frequencies, position, result);
  return result;
}

RotationTable::RotationTable(const model::ModelConfig& config, FrequencyOrder order)
    : config_(config), frequencies_(inverse_frequencies(config, order)) {}

std::span<const Rotation> RotationTable::at(int64_t position) {
  CHECK(position >= 0);
  Page& page = pages_[position / kPagePositions];
  const auto place = static_cast<size_t>(position % kPagePositions);
  if (page.rotations.empty()) {
    page.rotations.resize(static_cast<size_t>(kPagePositions) * frequencies_.size());
  }
  const auto row = std::span(page.rotations).subspan(place * frequencies_.size(), frequencies_.size());
  if (!page.is_known[place]) {
    rotate(config_, frequencies_, position, row);
    page.is_known[place] = true;
  }
  return row;
}

double softmax_scale(const model::ModelConfig& config) {
  const double m = config.yarn ? magnitude(*config.yarn, config.yarn->mscale_all_dim) : 1.0;
  return 1.0 / std::sqrt(static_cast<double>(config.qk_head_dim())) * m * m;
}

}  // namespace reference
