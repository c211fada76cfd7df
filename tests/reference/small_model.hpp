// A model of a few thousand random weights with ragged sizes, complete from embedding to MTP layer, made in memory.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "model/probe.hpp"
#include "model/tensor_catalog.hpp"
#include "reference/numerics/bf16.hpp"
#include "reference/transformer.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {

inline model::ModelConfig small_config() {
  model::ModelConfig config;
  config.vocab_size = 40;
  config.hidden_size = 200;  // not a multiple of 128
  config.intermediate_size = 144;
  config.moe_intermediate_size = 40;
  config.num_hidden_layers = 2;
  config.num_nextn_predict_layers = 1;
  config.first_k_dense_replace = 1;
  config.num_attention_heads = 2;
  config.q_lora_rank = 136;
  config.kv_lora_rank = 64;
  config.qk_nope_head_dim = 16;
  config.qk_rope_head_dim = 8;
  config.v_head_dim = 24;
  config.n_routed_experts = 8;
  config.n_shared_experts = 1;
  config.num_experts_per_tok = 3;
  config.n_group = 4;
  config.topk_group = 2;
  config.routed_scaling_factor = 2.5;
  config.yarn =
      model::YarnConfig{.factor = 4, .original_max_position_embeddings = 16, .mscale = 0.7, .mscale_all_dim = 1};
  config.quantization = model::QuantizationConfig{};
  return config;
}

// Random weights of a sensible size: activations stay near 1.
inline HandMadeWeights random_weights(const model::ModelConfig& config, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  HandMadeWeights weights;
  weights.mutable_config() = config;
  for (const auto& tensor : model::tensor_catalog(config)) {
    const auto size = static_cast<size_t>(model::num_elements(tensor.shape));
    if (tensor.dtype == model::DType::kF8E4M3) {
      std::vector<uint8_t> codes(size);
      for (uint8_t& code : codes) {
        code = static_cast<uint8_t>(generator() % 0x7F + (generator() % 2 == 0 ? 0 : 0x80));
      }
      weights.set(tensor.name, model::make_tensor(tensor.dtype, tensor.shape, std::move(codes)));
      continue;
    }
    std::vector<float> values(size);
    for (float& value : values) {
      const float random = normal(generator);
      switch (tensor.role) {
        case model::TensorRole::kScale: value = 0.001f * (1 + std::abs(random)); break;
        case model::TensorRole::kNorm: value = 1 + 0.2f * random; break;
        case model::TensorRole::kRouterBias: value = 0.1f * random; break;
        default: value = 0.1f * random;
      }
    }
    if (tensor.dtype == model::DType::kBF16) {
      for (float& value : values) {
        value = round_to_bf16(value);
      }
      weights.set(tensor.name, bf16(tensor.shape, values));
    } else {
      weights.set(tensor.name, f32(tensor.shape, values));
    }
  }
  return weights;
}

// Two sequences, of which the first has cached tokens after the first of two steps.
inline std::vector<StepInput> two_steps(model::AttentionForm form, int64_t vocab_size) {
  std::vector<StepInput> steps(2);
  steps[0].workload.sequences = {{.num_cached = 0, .num_new = 5}};
  steps[1].workload.sequences = {{.num_cached = 5, .num_new = 2}, {.num_cached = 0, .num_new = 3}};
  for (StepInput& step : steps) {
    step.workload.attention_form = form;
    step.workload.num_mtp_layers = 1;
    step.mtp_tokens.resize(1);
    for (int32_t i = 0; i < step.workload.num_tokens(); ++i) {
      step.tokens.push_back(static_cast<int32_t>((i * 7 + 3) % vocab_size));
      step.mtp_tokens[0].push_back(static_cast<int32_t>((i * 7 + 10) % vocab_size));
    }
  }
  return steps;
}

// Asks for every op and looks at none.
class BlindProbe : public model::Probe {
 public:
  [[nodiscard]] bool wants(const model::Op&) const override { return true; }
  void see(const model::Op&, const model::TensorView&) override {}
};

}  // namespace reference
