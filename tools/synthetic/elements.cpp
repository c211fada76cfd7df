#include "tools/synthetic/elements.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "model/check.hpp"
#include "tools/synthetic/calibration.hpp"
#include "tools/synthetic/deviates.hpp"
#include "tools/synthetic/philox.hpp"

namespace tools::synthetic {
namespace {

using model::CatalogTensor;

constexpr int64_t kBlockLen = 128;

// A number in [0, 1).
double uniform(uint16_t bits) {
  return bits / 65536.0;
}

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

// The MTP layers hold copies of the main embedding and head.
std::string name_of_original(const CatalogTensor& tensor) {
  const std::string kind = kind_of(tensor);
  if (kind == "embed_tokens") {
    return "model.embed_tokens.weight";
  }
  return kind == "shared_head.head" ? "lm_head.weight" : tensor.name;
}

// The part of a tensor's rows [0, rows) x cols [0, cols) that is zero. Null if there is none.
const ZeroRegion* zero_region(const Fixture& fixture, const CatalogTensor& tensor) {
  const std::string kind = kind_of(tensor);
  for (const ZeroRegion& region : fixture.zeros) {
    if (region.kind == kind && (region.layer < 0 || region.layer == tensor.layer) &&
        (region.expert < 0 || region.expert == tensor.expert)) {
      return &region;
    }
  }
  return nullptr;
}

bool contains(const ZeroRegion* region, int64_t row, int64_t col) {
  return region != nullptr && region->row_begin <= row && row < region->row_end && region->col_begin <= col &&
         col < region->col_end;
}

// The row of a projection into the residual stream that is zero, so that the channel stays as the embedding left it. -1: none.
int64_t silent_row(const Fixture& fixture, const CatalogTensor& tensor) {
  const std::string kind = kind_of(tensor);
  return fixture.underflow && (kind.ends_with("down_proj") || kind.ends_with("o_proj")) ? fixture.underflow->channel : -1;
}

// Index of the element of a 128-block that holds the block's largest code.
int64_t largest_of_block(Draws& draws, const CatalogTensor& tensor, int64_t block_row, int64_t block_col, int64_t silent) {
  const int64_t num_cols = tensor.shape[1];
  const int64_t block_idx = block_row * ((num_cols + kBlockLen - 1) / kBlockLen) + block_col;
  const int64_t height = std::min(kBlockLen, tensor.shape[0] - block_row * kBlockLen);
  const int64_t width = std::min(kBlockLen, num_cols - block_col * kBlockLen);
  int64_t row = block_row * kBlockLen + draws.bits(2 * block_idx) % height;
  if (row == silent) {
    row = row == block_row * kBlockLen ? row + 1 : row - 1;
  }
  return row * num_cols + block_col * kBlockLen + draws.bits(2 * block_idx + 1) % width;
}

std::vector<uint8_t> fp8_codes(
    const Fixture& fixture, uint64_t seed, const CatalogTensor& tensor, int64_t first, int64_t count) {
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  Draws draws(seed, tensor.name);
  for (int64_t i = 0; i < count; ++i) {
    codes[static_cast<size_t>(i)] = normal_code(draws.bits(first + i));
  }
  if (count == 0) {
    return codes;
  }
  const int64_t num_cols = tensor.shape[1];
  const int64_t first_row = first / num_cols;
  const int64_t last_row = (first + count - 1) / num_cols;
  const int64_t silent = silent_row(fixture, tensor);
  Draws places(seed, tensor.name + "#largest");
  for (int64_t block_row = first_row / kBlockLen; block_row <= last_row / kBlockLen; ++block_row) {
    for (int64_t block_col = 0; block_col * kBlockLen < num_cols; ++block_col) {
      const int64_t i = largest_of_block(places, tensor, block_row, block_col, silent) - first;
      if (i >= 0 && i < count) {
        auto& code = codes[static_cast<size_t>(i)];
        code = static_cast<uint8_t>((code & kSignBit) | kLargestCode);
      }
    }
  }
  const ZeroRegion* zeros = zero_region(fixture, tensor);
  for (int64_t row = first_row; (zeros != nullptr || silent >= 0) && row <= last_row; ++row) {
    for (int64_t col = 0; col < num_cols; ++col) {
      const int64_t i = row * num_cols + col - first;
      if (i >= 0 && i < count && (row == silent || contains(zeros, row, col))) {
        codes[static_cast<size_t>(i)] = 0;
      }
    }
  }
  return codes;
}

// Scales of the weight that `scale` belongs to.
std::vector<float> scales(
    const Fixture& fixture, uint64_t seed, const CatalogTensor& scale, int64_t first, int64_t count) {
  CatalogTensor weight = scale;
  weight.name = scale.name.substr(0, scale.name.size() - std::string_view("_scale_inv").size());
  for (const CatalogTensor& candidate : model::tensor_catalog(fixture.config)) {
    if (candidate.name == weight.name) {
      weight = candidate;
    }
  }
  const double std = distribution_of(weight, seed).std / normal_code_std();
  const ZeroRegion* zeros = zero_region(fixture, weight);
  const int64_t num_cols = scale.shape[1];
  const bool is_single = scale.shape[0] * num_cols == 1;
  Draws draws(seed, scale.name);
  const int64_t parity = Draws(seed, scale.name + "#parity").bits(0) % 2;
  std::vector<float> values;
  for (int64_t i = first; i < first + count; ++i) {
    const int64_t row = i / num_cols;
    const int64_t col = i % num_cols;
    if (contains(zeros, row * kBlockLen, col * kBlockLen)) {
      values.push_back(1e-4f / 448.0f);  // what the published quantiser gives a block of zeros
      continue;
    }
    // A checkerboard: the smallest of the large factors is 4.19 times the largest of the small ones.
    const double where = uniform(draws.bits(i));
    const bool is_large = (row + col + parity) % 2 == 0;
    const double factor = is_single ? 0.95 + 0.1 * where : is_large ? 1.3 + 0.15 * where : 0.27 + 0.04 * where;
    // An odd last bit is no power of two.
    values.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(std * factor)) | 1));
  }
  return values;
}

// Signs alternate, so both are there.
std::vector<float> router_bias(
    const Fixture& fixture, uint64_t seed, const CatalogTensor& tensor, int64_t first, int64_t count) {
  Draws draws(seed, tensor.name);
  const int64_t parity = Draws(seed, tensor.name + "#parity").bits(0) % 2;
  const bool is_skewed = is_first_moe_layer(fixture.config, tensor.layer);
  std::vector<float> values;
  for (int64_t expert = first; expert < first + count; ++expert) {
    const double magnitude = kSmallestBias + (kLargestBias - kSmallestBias) * uniform(draws.bits(expert));
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

// Number at (row, col) of a BF16 tensor, before rounding, for the deviate z.
class Bf16Rule {
 public:
  Bf16Rule(const Fixture& fixture, uint64_t seed, const CatalogTensor& tensor)
      : fixture_(fixture),
        kind_(kind_of(tensor)),
        distribution_(distribution_of(tensor, seed)),
        hidden_size_(fixture.config.hidden_size),
        num_experts_(fixture.config.n_routed_experts),
        is_first_router_(kind_ == "mlp.gate" && is_first_moe_layer(fixture.config, tensor.layer)),
        is_hidden_norm_(tensor.role == model::TensorRole::kNorm && tensor.shape[0] == hidden_size_) {}

  [[nodiscard]] double number(int64_t row, int64_t col, double z) const {
    if (kind_ == "embed_tokens") {
      return embedding(row, col, z);
    }
    if (is_first_router_) {
      return router(row, col, z);
    }
    const bool is_plain_gain = is_hidden_norm_ && (is_outlier(row) || is_underflow_channel(row));
    const bool is_latent_row = kind_ == "self_attn.kv_a_proj_with_mqa" && row < fixture_.config.kv_lora_rank;
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
  std::string kind_;
  Distribution distribution_;
  int64_t hidden_size_;
  int64_t num_experts_;
  bool is_first_router_;
  bool is_hidden_norm_;
};

std::vector<uint16_t> bf16_codes(
    const Fixture& fixture, uint64_t seed, const CatalogTensor& tensor, int64_t first, int64_t count) {
  Draws draws(seed, name_of_original(tensor));
  const Bf16Rule rule(fixture, seed, tensor);
  const int64_t row_len = tensor.shape.size() == 1 ? 1 : tensor.shape[1];
  std::vector<uint16_t> codes;
  codes.reserve(static_cast<size_t>(count));
  for (int64_t i = first; i < first + count; ++i) {
    codes.push_back(bf16_code(rule.number(i / row_len, i % row_len, normal_deviate(draws.bits(i)))));
  }
  return codes;
}

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

std::vector<std::byte> elements(
    const Fixture& fixture, uint64_t seed, const CatalogTensor& tensor, int64_t first, int64_t count) {
  CHECK(first >= 0 && count >= 0 && first + count <= model::num_elements(tensor.shape));
  switch (tensor.role) {
    case model::TensorRole::kScale: return bytes_of(scales(fixture, seed, tensor, first, count));
    case model::TensorRole::kRouterBias: return bytes_of(router_bias(fixture, seed, tensor, first, count));
    default:
      return tensor.dtype == model::DType::kF8E4M3 ? bytes_of(fp8_codes(fixture, seed, tensor, first, count))
                                                   : bytes_of(bf16_codes(fixture, seed, tensor, first, count));
  }
}

}  // namespace tools::synthetic
