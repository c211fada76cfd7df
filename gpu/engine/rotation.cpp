#include "gpu/engine/rotation.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gpu {
namespace {

double attention_factor(const model::YarnConfig& yarn, double mscale) {
  return yarn.factor > 1 ? 0.1 * mscale * std::log(yarn.factor) + 1 : 1;
}

// The dimension, of `rope`, that turns `num_turns` times within the original context.
double dimension_of(double num_turns, const model::ModelConfig& config) {
  const auto length = static_cast<double>(config.yarn->original_max_position_embeddings);
  return static_cast<double>(config.qk_rope_head_dim) * std::log(length / (num_turns * 2 * std::numbers::pi)) /
         (2 * std::log(config.rope_theta));
}

std::vector<float> frequencies_of(const model::ModelConfig& config) {
  const int64_t rope = config.qk_rope_head_dim;
  float low = 0;
  float high = 0;
  if (config.yarn) {
    const double first = std::max(std::floor(dimension_of(config.yarn->beta_fast, config)), 0.0);
    double last = std::min(std::ceil(dimension_of(config.yarn->beta_slow, config)), static_cast<double>(rope - 1));
    last += first == last ? 0.001 : 0;
    low = static_cast<float>(first);
    high = static_cast<float>(last);
  }
  std::vector<float> frequencies;
  for (int64_t i = 0; i < rope / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope);
    const auto base = static_cast<float>(config.rope_theta);
    float frequency = 1.0f / static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
    if (config.yarn) {
      const float smooth = 1.0f - std::clamp((static_cast<float>(i) - low) / (high - low), 0.0f, 1.0f);
      frequency = frequency / static_cast<float>(config.yarn->factor) * (1.0f - smooth) + frequency * smooth;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace

std::vector<float> rotation_table(const model::ModelConfig& config, int64_t num_positions) {
  const auto frequencies = frequencies_of(config);
  const float factor = config.yarn ? static_cast<float>(attention_factor(*config.yarn, config.yarn->mscale) /
                                                        attention_factor(*config.yarn, config.yarn->mscale_all_dim))
                                   : 1.0f;
  std::vector<float> table;
  table.reserve(static_cast<size_t>(num_positions) * frequencies.size() * 2);
  for (int64_t position = 0; position < num_positions; ++position) {
    for (const float frequency : frequencies) {
      const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
      table.push_back(static_cast<float>(std::cos(angle)) * factor);
      table.push_back(static_cast<float>(std::sin(angle)) * factor);
    }
  }
  return table;
}

float softmax_scale(const model::ModelConfig& config) {
  const double m = config.yarn ? attention_factor(*config.yarn, config.yarn->mscale_all_dim) : 1;
  return static_cast<float>(1 / std::sqrt(static_cast<double>(config.qk_head_dim())) * m * m);
}

}  // namespace gpu
