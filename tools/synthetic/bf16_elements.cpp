// What a checkpoint never stores in FP8: embedding, head, router, norms, the router's bias, and all weights of a BF16 checkpoint.
#include <bit>
#include <string>

#include "tools/synthetic/calibration.hpp"
#include "tools/synthetic/deviates.hpp"
#include "tools/synthetic/elements.hpp"
#include "tools/synthetic/philox.hpp"

namespace tools::synthetic {
namespace {

using model::CatalogTensor;

// To nearest, ties to even. `value` is finite.
uint16_t bf16_code(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

bool is_first_moe_layer(const model::ModelConfig& config, int64_t layer) {
  for (int64_t earlier = 0; earlier < layer; ++earlier) {
    if (config.is_moe_layer(earlier)) {
      return false;
    }
  }
  return config.is_moe_layer(layer);
}

// Number at (row, col) of a BF16 tensor, before rounding, for the deviate z.
class Bf16Rule {
 public:
  Bf16Rule(const Fixture& fixture, uint64_t seed, const CatalogTensor& tensor)
      : fixture_(fixture),
        is_embedding_(kind_of(tensor) == "embed_tokens"),
        distribution_(distribution_of(tensor, seed)),
        hidden_size_(fixture.config.hidden_size),
        num_experts_(fixture.config.n_routed_experts),
        is_kv_a_(kind_of(tensor) == "self_attn.kv_a_proj_with_mqa"),
        is_first_router_(kind_of(tensor) == "mlp.gate" && is_first_moe_layer(fixture.config, tensor.layer)),
        is_hidden_norm_(tensor.role == model::TensorRole::kNorm && tensor.shape[0] == hidden_size_) {}

  [[nodiscard]] double number(int64_t row, int64_t col, double z) const {
    if (is_embedding_) {
      return embedding(row, col, z);
    }
    if (is_first_router_) {
      return router(row, col, z);
    }
    const bool is_plain_gain = is_hidden_norm_ && (is_outlier(row) || is_underflow_channel(row));
    const bool is_latent_row = is_kv_a_ && row < fixture_.config.kv_lora_rank;
    return distribution_.mean +
           distribution_.std * (is_plain_gain ? 0 : z) * (is_latent_row ? fixture_.latent_row_factor : 1);
  }

 private:
  [[nodiscard]] bool is_outlier(int64_t channel) const {
    return channel == kPositiveOutlier || channel == hidden_size_ - kNegativeOutlierFromEnd;
  }
  [[nodiscard]] bool is_underflow_channel(int64_t channel) const {
    return fixture_.underflow && channel == fixture_.underflow->channel;
  }

  [[nodiscard]] double embedding(int64_t token, int64_t channel, double z) const {
    if (is_underflow_channel(channel)) {
      return token == fixture_.underflow->token ? fixture_.underflow->activation : 0;
    }
    double factor = 1;
    for (const ScaledToken& scaled : fixture_.scaled_tokens) {
      factor = scaled.token == token ? scaled.factor : factor;
    }
    const double sign = channel == kPositiveOutlier ? 1 : -1;
    return distribution_.std * factor * (is_outlier(channel) ? sign * kOutlierRatio * (1 + 0.1 * z) : z);
  }

  [[nodiscard]] double router(int64_t expert, int64_t channel, double z) const {
    if (is_underflow_channel(channel)) {
      return fixture_.underflow->router_weight;
    }
    if (fixture_.config.has_router_bias()) {
      return distribution_.std * z;
    }
    if (channel == kPositiveOutlier && expert == kEveryonesExpert) {
      return kSkewWeight;
    }
    if (channel == kPositiveOutlier && expert == num_experts_ - kNobodysExpertFromEnd) {
      return -kSkewWeight;
    }
    return distribution_.std * kSkewedRouterFactor * z;
  }

  const Fixture& fixture_;
  bool is_embedding_;
  Distribution distribution_;
  int64_t hidden_size_;
  int64_t num_experts_;
  bool is_kv_a_;
  bool is_first_router_;
  bool is_hidden_norm_;
};

}  // namespace

std::string original_name(const CatalogTensor& tensor) {
  const std::string kind = kind_of(tensor);
  if (kind == "embed_tokens") {
    return "model.embed_tokens.weight";
  }
  return kind == "shared_head.head" ? "lm_head.weight" : tensor.name;
}

std::vector<uint16_t> bf16_codes(
    const Fixture& fixture, uint64_t seed, const CatalogTensor& tensor, int64_t first, int64_t count) {
  Draws draws(seed, original_name(tensor));
  const Bf16Rule rule(fixture, seed, tensor);
  const auto deviates = normal_deviates();
  const int64_t row_len = tensor.shape.size() == 1 ? 1 : tensor.shape[1];
  std::vector<uint16_t> codes;
  codes.reserve(static_cast<size_t>(count));
  for (int64_t i = first; i < first + count; ++i) {
    codes.push_back(bf16_code(rule.number(i / row_len, i % row_len, deviates[draws.bits(i)])));
  }
  return codes;
}

// Signs alternate, so both are there.
std::vector<float> router_biases(
    const Fixture& fixture, uint64_t seed, const CatalogTensor& tensor, int64_t first, int64_t count) {
  Draws draws(seed, tensor.name);
  const int64_t parity = Draws(seed, tensor.name + "#parity").bits(0) % 2;
  const bool is_skewed = is_first_moe_layer(fixture.config, tensor.layer);
  std::vector<float> values;
  for (int64_t expert = first; expert < first + count; ++expert) {
    const double magnitude = kSmallestBias + (kLargestBias - kSmallestBias) * draws.uniform(expert);
    double bias = (expert + parity) % 2 == 0 ? magnitude : -magnitude;
    if (is_skewed && expert == kEveryonesExpert) {
      bias = kEveryonesBias;
    } else if (is_skewed && expert == tensor.shape[0] - kNobodysExpertFromEnd) {
      bias = kNobodysBias;
    }
    values.push_back(static_cast<float>(bias));
  }
  return values;
}

}  // namespace tools::synthetic
