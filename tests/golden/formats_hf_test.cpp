// Names and layouts of transformers: every element value says where it came from.
#include "tests/golden/hand_written.hpp"

namespace {

using namespace hand_written;
using model::DType;
using Values = std::vector<double>;

TEST(HfFormat, QueryRotationsBecomeInterleavedPairsWithTokensFirst) {
  // [1 sequence, 2 heads, 2 tokens, 4]: element value = head*8 + token*4 + place; places 0 1 are first, 2 3 second members.
  const auto [name, tensor] = read_one({{"p2/model.layers.0.self_attn.q_rot", counting({1, 2, 2, 4})}}, "hf");
  EXPECT_EQ(name, "p2/layer.0.attn.q_rope");
  EXPECT_EQ(tensor.shape, (Shape{2, 2, 4}));
  EXPECT_EQ(model::to_double(tensor),
            (Values{0, 2, 1, 3, /*token 0 head 1*/ 8, 10, 9, 11, /*token 1*/ 4, 6, 5, 7, 12, 14, 13, 15}));
}

TEST(HfFormat, QueryRotationsOfABatchKeepSequencesApart) {
  // [2 sequences, 2 heads, 2 tokens, 4]: the second sequence begins at 16.
  const auto [name, tensor] = read_one({{"b/model.layers.0.self_attn.q_rot", counting({2, 2, 2, 4})}}, "hf");
  EXPECT_EQ(tensor.shape, (Shape{4, 2, 4}));
  const Values values = model::to_double(tensor);
  EXPECT_EQ(values[16], 16);      // row 2 = sequence 1, token 0, head 0
  EXPECT_EQ(values[16 + 4], 24);  // its head 1
  EXPECT_EQ(values[24], 20);      // row 3 = sequence 1, token 1, head 0
}

TEST(HfFormat, KeyRotationsBecomeInterleavedPairs) {
  const auto [name, tensor] = read_one({{"p2/model.layers.1.self_attn.k_rot", counting({1, 1, 2, 4})}}, "hf");
  EXPECT_EQ(name, "p2/layer.1.attn.k_rope");
  EXPECT_EQ(tensor.shape, (Shape{2, 4}));
  EXPECT_EQ(model::to_double(tensor), (Values{0, 2, 1, 3, 4, 6, 5, 7}));
}

TEST(HfFormat, ProbabilitiesHaveTokensFirst) {
  // [1, 2 heads, 2 tokens, 2 keys]
  const auto [name, tensor] = read_one({{"p2/model.layers.0.self_attn.probs", counting({1, 2, 2, 2})}}, "hf");
  EXPECT_EQ(name, "p2/layer.0.attn.probs");
  EXPECT_EQ(tensor.shape, (Shape{2, 2, 2}));
  EXPECT_EQ(model::to_double(tensor), (Values{0, 1, 4, 5, 2, 3, 6, 7}));
}

TEST(HfFormat, TheCacheJoinsLatentAndInterleavedKeyOverAllPositions) {
  // d0 follows p2, so the cache holds three positions.
  const auto nope = counting({1, 1, 3, 2});
  const auto dump = read({{"d0/cache.1.kv_nope", nope}, {"d0/cache.1.k_rot", counting({1, 1, 3, 4})}}, "hf");
  ASSERT_TRUE(dump.tensors.contains("d0/cache.1.latent"));
  EXPECT_TRUE(dump.unused.empty());
  const TensorView& latent = dump.tensors.at("d0/cache.1.latent");
  EXPECT_EQ(latent.shape, (Shape{3, 6}));
  EXPECT_EQ(model::to_double(latent), (Values{0, 1, 0, 2, 1, 3, 2, 3, 4, 6, 5, 7, 4, 5, 8, 10, 9, 11}));
}

TEST(HfFormat, KvBHoldsEveryKeyAtDecode) {
  const auto [name, tensor] = read_one({{"d0/model.layers.0.self_attn.kv_b_proj", counting({1, 1, 3, 4})}}, "hf");
  EXPECT_EQ(name, "d0/layer.0.attn.kv_b");
  EXPECT_EQ(tensor.shape, (Shape{3, 4}));
}

TEST(HfFormat, MtpNamesAreALayerUnderItsDepth) {
  const auto rows = counting({1, 2, 2});
  const Dump dump = read({{"p2/mtp.0.enorm", rows},
                          {"p2/mtp.0.hnorm", rows},
                          {"p2/mtp.0.eh_proj", rows},
                          {"p2/mtp.0.post_norm", rows},
                          {"p2/mtp.0.logits", counting({1, 2, 5})},
                          {"p2/mtp.0.mtp_block", rows},
                          {"p2/mtp.0.mtp_block.input_layernorm", rows},
                          {"p2/mtp.0.mtp_block.mlp.experts", counting({2, 2})},
                          {"p2/mtp_var.post.0.logits", counting({1, 2, 5})}},
                         "hf");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : dump.tensors) {
    names.push_back(name);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"p2/mtp.0.eh_proj",
                                      "p2/mtp.0.enorm",
                                      "p2/mtp.0.hnorm",
                                      "p2/mtp.0.layer.attn_norm",
                                      "p2/mtp.0.layer.moe.routed",
                                      "p2/mtp.0.layer.output",
                                      "p2/mtp.0.logits",
                                      "p2/mtp.0.norm"}));
  EXPECT_EQ(dump.unused, (std::vector<std::string>{"p2/mtp_var.post.0.logits"}));
}

TEST(HfFormat, IdsOf64BitsBecome32AndKeepTheirOrder) {
  const auto ids = model::make_tensor(DType::kI64, {2, 1}, std::vector<int64_t>{1, 0});
  const auto [name, tensor] = read_one({{"p2/model.layers.1.mlp.gate.indices", ids}}, "hf");
  EXPECT_EQ(name, "p2/layer.1.moe.topk_ids");
  EXPECT_EQ(tensor.dtype, DType::kI32);
  EXPECT_EQ(model::to_double(tensor), (Values{1, 0}));
}

TEST(HfFormat, IdsBeyond32BitsAreRefused) {
  const auto ids = model::make_tensor(DType::kI64, {2, 1}, std::vector<int64_t>{1, int64_t{1} << 40});
  EXPECT_NE(refusal({{"p2/model.layers.1.mlp.gate.indices", ids}}, "hf").find("1099511627776"), std::string::npos);
}

}  // namespace
