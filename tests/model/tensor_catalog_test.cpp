#include "model/tensor_catalog.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/model/config_texts.hpp"

namespace model {
namespace {

std::map<std::string, CatalogTensor> by_name(const ModelConfig& config) {
  std::map<std::string, CatalogTensor> tensors;
  for (const CatalogTensor& tensor : tensor_catalog(config)) {
    EXPECT_TRUE(tensors.emplace(tensor.name, tensor).second) << tensor.name << " twice";
  }
  return tensors;
}

// Number of tensors, elements and bytes of the public inventory of the R1 checkpoint, MTP included.
TEST(TensorCatalog, PublishedV3_HasTheInventorysTotals) {
  const std::vector<CatalogTensor> catalog = tensor_catalog(built_in_config("deepseek-v3"));
  int64_t elements = 0;
  int64_t bytes = 0;
  for (const CatalogTensor& tensor : catalog) {
    elements += num_elements(tensor.shape);
    bytes += num_elements(tensor.shape) * dtype_bytes(tensor.dtype);
  }
  EXPECT_EQ(catalog.size(), 91991u);
  EXPECT_EQ(elements, 684531386000);
  EXPECT_EQ(bytes, 688574839360);
}

struct Expected {
  const char* name;
  Shape shape;
  DType dtype;
  TensorRole role;
};

// Section 2.1 of the model specification, row by row.
TEST(TensorCatalog, PublishedV3_HasThePublishedShapesAndFormats) {
  const auto tensors = by_name(built_in_config("deepseek-v3"));
  const DType fp8 = DType::kF8E4M3;
  const DType bf16 = DType::kBF16;
  const DType fp32 = DType::kF32;
  const Expected rows[] = {
      {"model.embed_tokens.weight", {129280, 7168}, bf16, TensorRole::kBf16Linear},
      {"lm_head.weight", {129280, 7168}, bf16, TensorRole::kBf16Linear},
      {"model.norm.weight", {7168}, bf16, TensorRole::kNorm},
      {"model.layers.0.input_layernorm.weight", {7168}, bf16, TensorRole::kNorm},
      {"model.layers.61.post_attention_layernorm.weight", {7168}, bf16, TensorRole::kNorm},
      {"model.layers.7.self_attn.q_a_proj.weight", {1536, 7168}, fp8, TensorRole::kLinear},
      {"model.layers.7.self_attn.q_a_proj.weight_scale_inv", {12, 56}, fp32, TensorRole::kScale},
      {"model.layers.7.self_attn.q_a_layernorm.weight", {1536}, bf16, TensorRole::kNorm},
      {"model.layers.7.self_attn.q_b_proj.weight", {24576, 1536}, fp8, TensorRole::kLinear},
      {"model.layers.7.self_attn.q_b_proj.weight_scale_inv", {192, 12}, fp32, TensorRole::kScale},
      {"model.layers.7.self_attn.kv_a_proj_with_mqa.weight", {576, 7168}, fp8, TensorRole::kLinear},
      {"model.layers.7.self_attn.kv_a_proj_with_mqa.weight_scale_inv", {5, 56}, fp32, TensorRole::kScale},
      {"model.layers.7.self_attn.kv_a_layernorm.weight", {512}, bf16, TensorRole::kNorm},
      {"model.layers.7.self_attn.kv_b_proj.weight", {32768, 512}, fp8, TensorRole::kLinear},
      {"model.layers.7.self_attn.kv_b_proj.weight_scale_inv", {256, 4}, fp32, TensorRole::kScale},
      {"model.layers.7.self_attn.o_proj.weight", {7168, 16384}, fp8, TensorRole::kLinear},
      {"model.layers.7.self_attn.o_proj.weight_scale_inv", {56, 128}, fp32, TensorRole::kScale},
      {"model.layers.2.mlp.gate_proj.weight", {18432, 7168}, fp8, TensorRole::kLinear},
      {"model.layers.2.mlp.up_proj.weight_scale_inv", {144, 56}, fp32, TensorRole::kScale},
      {"model.layers.2.mlp.down_proj.weight", {7168, 18432}, fp8, TensorRole::kLinear},
      {"model.layers.2.mlp.down_proj.weight_scale_inv", {56, 144}, fp32, TensorRole::kScale},
      {"model.layers.3.mlp.gate.weight", {256, 7168}, bf16, TensorRole::kBf16Linear},
      {"model.layers.3.mlp.gate.e_score_correction_bias", {256}, fp32, TensorRole::kRouterBias},
      {"model.layers.3.mlp.experts.255.gate_proj.weight", {2048, 7168}, fp8, TensorRole::kLinear},
      {"model.layers.3.mlp.experts.0.up_proj.weight_scale_inv", {16, 56}, fp32, TensorRole::kScale},
      {"model.layers.3.mlp.experts.10.down_proj.weight", {7168, 2048}, fp8, TensorRole::kLinear},
      {"model.layers.3.mlp.experts.10.down_proj.weight_scale_inv", {56, 16}, fp32, TensorRole::kScale},
      {"model.layers.60.mlp.shared_experts.gate_proj.weight", {2048, 7168}, fp8, TensorRole::kLinear},
      {"model.layers.61.enorm.weight", {7168}, bf16, TensorRole::kNorm},
      {"model.layers.61.hnorm.weight", {7168}, bf16, TensorRole::kNorm},
      {"model.layers.61.eh_proj.weight", {7168, 14336}, bf16, TensorRole::kBf16Linear},
      {"model.layers.61.shared_head.norm.weight", {7168}, bf16, TensorRole::kNorm},
      {"model.layers.61.shared_head.head.weight", {129280, 7168}, bf16, TensorRole::kBf16Linear},
      {"model.layers.61.embed_tokens.weight", {129280, 7168}, bf16, TensorRole::kBf16Linear},
      {"model.layers.61.mlp.experts.255.down_proj.weight", {7168, 2048}, fp8, TensorRole::kLinear},
  };
  for (const Expected& row : rows) {
    const auto found = tensors.find(row.name);
    ASSERT_NE(found, tensors.end()) << row.name;
    EXPECT_EQ(found->second.shape, row.shape) << row.name;
    EXPECT_EQ(found->second.dtype, row.dtype) << row.name;
    EXPECT_EQ(found->second.role, row.role) << row.name;
  }
  EXPECT_FALSE(tensors.contains("model.layers.2.mlp.gate.weight"));
  EXPECT_FALSE(tensors.contains("model.layers.3.mlp.gate_proj.weight"));
}

TEST(TensorCatalog, LayerExpertAndScale_AreThoseOfTheName) {
  const auto tensors = by_name(built_in_config("deepseek-v3"));
  const CatalogTensor& expert = tensors.at("model.layers.61.mlp.experts.17.up_proj.weight");
  EXPECT_EQ(expert.layer, 61);
  EXPECT_EQ(expert.expert, 17);
  EXPECT_EQ(expert.scale, "model.layers.61.mlp.experts.17.up_proj.weight_scale_inv");
  EXPECT_EQ(tensors.at(expert.scale).expert, 17);
  EXPECT_EQ(tensors.at("model.layers.3.mlp.shared_experts.up_proj.weight").expert, -1);
  EXPECT_EQ(tensors.at("model.norm.weight").layer, -1);
  EXPECT_EQ(tensors.at("model.norm.weight").scale, "");
}

// The published V2-Lite checkpoint: 15,706,484,224 parameters, all BF16, no bias of the router.
TEST(TensorCatalog, V2Lite_HasItsPublishedSize) {
  const ModelConfig config = parse_config(kDeepseekV2Lite, "test");
  int64_t elements = 0;
  for (const CatalogTensor& tensor : tensor_catalog(config)) {
    elements += num_elements(tensor.shape);
    EXPECT_EQ(tensor.dtype, DType::kBF16) << tensor.name;
    EXPECT_EQ(tensor.scale, "") << tensor.name;
  }
  EXPECT_EQ(elements, 15706484224);
  const auto tensors = by_name(config);
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.q_proj.weight").shape, (Shape{3072, 2048}));
  EXPECT_FALSE(tensors.contains("model.layers.0.self_attn.q_a_proj.weight"));
  EXPECT_FALSE(tensors.contains("model.layers.1.mlp.gate.e_score_correction_bias"));
  EXPECT_EQ(tensors.at("model.layers.1.mlp.shared_experts.up_proj.weight").shape, (Shape{2816, 2048}));
}

TEST(TensorCatalog, TiedEmbeddings_HaveNoHead) {
  ModelConfig config = parse_config(kSmall, "test");
  EXPECT_TRUE(by_name(config).contains("lm_head.weight"));
  config.tie_word_embeddings = true;
  EXPECT_FALSE(by_name(config).contains("lm_head.weight"));
}

TEST(TensorCatalog, NoSharedExpert_HasNoSharedTensors) {
  ModelConfig config = parse_config(kSmall, "test");
  config.n_shared_experts = 0;
  EXPECT_FALSE(by_name(config).contains("model.layers.1.mlp.shared_experts.up_proj.weight"));
}

}  // namespace
}  // namespace model
