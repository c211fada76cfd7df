// RoPE with YaRN: inverse frequencies, angles, softmax scale.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "model/config.hpp"
#include "reference/rules.hpp"

namespace reference {

// [qk_rope_head_dim / 2] FP32. Source: precompute_freqs_cis in DeepSeek-V3.2-Exp inference/model.py (kOfficial);
// _compute_yarn_parameters in transformers modeling_rope_utils.py (kHuggingFace). Powers are correctly rounded. YaRN, when the
// config has it, is on for every position.
std::vector<float> inverse_frequencies(const model::ModelConfig& config, FrequencyOrder order);

struct Rotation {
  float cos = 1;
  float sin = 0;
};

// [qk_rope_head_dim / 2]: the FP32 product position * frequency, then correctly rounded FP32 cos and sin of it, times
// m(mscale) / m(mscale_all_dim), with m(a) = 0.1 a ln(factor) + 1.
std::vector<Rotation> rotations(const model::ModelConfig& config,
                                const std::vector<float>& frequencies,
                                int64_t position);

// rotations() of every position asked for, kept in pages of 64, so that few steps ask for memory. Not for two threads at once.
class RotationTable {
 public:
  RotationTable(const model::ModelConfig& config, FrequencyOrder order);
  // [qk_rope_head_dim / 2]; valid as long as the table.
  [[nodiscard]] std::span<const Rotation> at(int64_t position);

 private:
  static constexpr int64_t kPagePositions = 64;
  struct Page {
    std::array<bool, kPagePositions> is_known = {};
    std::vector<Rotation> rotations = {};  // [64, qk_rope_head_dim / 2]
  };

  model::ModelConfig config_;
  std::vector<float> frequencies_;
  std::map<int64_t, Page> pages_;  // by position / 64
};

// qk_head_dim^-0.5 * m(mscale_all_dim)^2.
double softmax_scale(const model::ModelConfig& config);

}  // namespace reference
