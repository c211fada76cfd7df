// A tiny model, a few cases of it, and dumps of them written by hand.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "golden/formats.hpp"
#include "model/check.hpp"
#include "model/safetensors.hpp"
#include "tests/temp_dir.hpp"

namespace hand_written {

using golden::Case;
using golden::Dump;
using model::Shape;
using model::TensorView;
using Tensors = std::vector<std::pair<std::string, TensorView>>;

inline model::ModelConfig tiny_config() {
  model::ModelConfig config;
  config.vocab_size = 5;
  config.hidden_size = 2;
  config.intermediate_size = 3;
  config.moe_intermediate_size = 2;
  config.num_hidden_layers = 2;
  config.num_nextn_predict_layers = 1;
  config.first_k_dense_replace = 1;
  config.num_attention_heads = 2;
  config.q_lora_rank = 3;
  config.kv_lora_rank = 2;
  config.qk_nope_head_dim = 1;
  config.qk_rope_head_dim = 4;
  config.v_head_dim = 1;
  config.n_routed_experts = 2;
  config.n_shared_experts = 1;
  config.num_experts_per_tok = 1;
  return config;
}

// p2: two tokens; d0: one more; b: two sequences of two; r: four tokens of which dumps keep rows 0 and 3.
inline const std::vector<Case> kCases{{.name = "p2", .sequences = {{1, 2}}, .mtp_ids = {3}},
                                      {.name = "b", .sequences = {{1, 2}, {3, 4}}},
                                      {.name = "d0", .after = "p2", .sequences = {{3}}},
                                      {.name = "r", .sequences = {{1, 2, 3, 4}}, .rows = {0, 3}}};

// 0, 1, 2, ... as F32.
inline TensorView counting(Shape shape) {
  std::vector<float> values(static_cast<size_t>(model::num_elements(shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
  }
  return model::make_tensor(model::DType::kF32, std::move(shape), std::move(values));
}

inline Dump read(const Tensors& tensors, const std::string& format) {
  const TempDir folder;
  model::write_safetensors(folder / "dump.safetensors", tensors, {});
  return golden::read_dump(folder / "dump.safetensors", format, tiny_config(), kCases);
}

// The only tensor of a dump that was made from these.
inline std::pair<std::string, TensorView> read_one(const Tensors& tensors, const std::string& format) {
  const Dump dump = read(tensors, format);
  EXPECT_EQ(dump.tensors.size(), 1U);
  EXPECT_TRUE(dump.unused.empty());
  if (dump.tensors.empty()) {
    return {};
  }
  return *dump.tensors.begin();
}

inline std::string refusal(const Tensors& tensors, const std::string& format) {
  try {
    read(tensors, format);
  } catch (const model::InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace hand_written
