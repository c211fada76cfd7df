// What a step of DeepSeek-V3's heads holds beside the weights when 4096 positions are before it: at most 200 MB (docs/speed.md).
// One dense layer of zeros with a narrow residual stream, since heads are what it grows with.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "model/tensor_catalog.hpp"
#include "reference/transformer.hpp"
#include "tests/reference/counted_memory.hpp"

namespace reference {
namespace {

model::ModelConfig heads_of_v3() {
  model::ModelConfig config;
  config.vocab_size = 512;
  config.hidden_size = 256;
  config.intermediate_size = 256;
  config.num_hidden_layers = 1;
  config.num_nextn_predict_layers = 0;
  config.first_k_dense_replace = 1;
  config.num_attention_heads = 128;
  config.q_lora_rank = 1536;
  config.kv_lora_rank = 512;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  config.v_head_dim = 128;
  config.max_position_embeddings = 8192;
  config.quantization = model::QuantizationConfig{};
  return config;
}

class Zeros : public model::WeightSource {
 public:
  explicit Zeros(model::ModelConfig config) : config_(std::move(config)) {
    for (const auto& tensor : model::tensor_catalog(config_)) {
      const auto num_bytes = static_cast<size_t>(model::num_elements(tensor.shape) * model::dtype_bytes(tensor.dtype));
      auto bytes = std::make_shared<std::vector<std::byte>>(num_bytes);
      tensors_[tensor.name] = {tensor.dtype, tensor.shape, *bytes, bytes};
    }
  }
  [[nodiscard]] const model::ModelConfig& config() const override { return config_; }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override { return tensors_.at(name); }
  [[nodiscard]] bool keeps_tensors() const override { return true; }

 private:
  model::ModelConfig config_;
  std::map<std::string, model::TensorView> tensors_;
};

class WantsNothing : public model::Probe {
 public:
  [[nodiscard]] bool wants(const model::Op&) const override { return false; }
  void see(const model::Op&, const model::TensorView&) override {}
};

// Bytes at most beside the weights in the last step of a prompt of `num_keys` tokens, of which dsv3-infer takes `num_new` in it.
int64_t peak_of_last_step(int64_t num_keys, int64_t num_new) {
  const Zeros weights(heads_of_v3());
  const int64_t before = counted_memory::num_bytes_held;
  const Transformer transformer(weights, v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32), 1);
  LatentCache cache;
  for (int64_t position = 0; position < num_keys - num_new; ++position) {
    std::ranges::fill(cache.append(0, 0, model::DType::kBF16, weights.config().latent_dim()), std::byte{0});
  }
  StepInput input;
  input.workload.sequences = {{.num_cached = num_keys - num_new, .num_new = num_new}};
  input.tokens.resize(static_cast<size_t>(num_new));
  WantsNothing probe;
  counted_memory::num_bytes_at_most = counted_memory::num_bytes_held.load();
  transformer.step(input, cache, probe);
  return counted_memory::num_bytes_at_most - before;
}

TEST(PeakMemory, APromptOf4096TokensAtTheHeadsOfV3StaysWithinTheLimit) {
  const int64_t peak = peak_of_last_step(4096, 26);
  std::cout << static_cast<double>(peak) * 1e-6 << " MB beside the weights\n";
  EXPECT_LT(peak, 200'000'000);
  EXPECT_GT(peak, 128LL * 26 * 4096 * 4);  // the probabilities alone: otherwise nobody counted
}

}  // namespace
}  // namespace reference
