// Names and layouts of DeepSeek's own inference code: every element value says where it came from.
#include "tests/golden/hand_written.hpp"

namespace {

using namespace hand_written;
using model::DType;
using Values = std::vector<double>;

TEST(V32Format, BatchesAreFlattened) {
  const auto [name, tensor] = read_one({{"b/layers.0.attn.wq_a", counting({2, 2, 3})}}, "v32");
  EXPECT_EQ(name, "b/layer.0.attn.q_a");
  EXPECT_EQ(tensor.shape, (Shape{4, 3}));
  EXPECT_EQ(model::to_double(tensor), model::to_double(counting({4, 3})));
}

TEST(V32Format, HeadsStayBehindTokens) {
  const Dump dump = read({{"p2/layers.0.attn.q_pe_rot", counting({1, 2, 2, 4})},
                          {"p2/layers.0.attn.k_pe_rot", counting({1, 2, 1, 4})},
                          {"p2/layers.0.attn.probs", counting({1, 2, 2, 2})}},
                         "v32");
  EXPECT_EQ(dump.tensors.at("p2/layer.0.attn.q_rope").shape, (Shape{2, 2, 4}));
  EXPECT_EQ(model::to_double(dump.tensors.at("p2/layer.0.attn.q_rope")), model::to_double(counting({16})));
  EXPECT_EQ(dump.tensors.at("p2/layer.0.attn.k_rope").shape, (Shape{2, 4}));
  EXPECT_EQ(dump.tensors.at("p2/layer.0.attn.probs").shape, (Shape{2, 2, 2}));
}

TEST(V32Format, TheLayerOutputIsThePairsSumInF32) {
  // BF16 codes: 0x3F80 = 1, 0x3B00 = 2^-9. The sum 1 + 2^-9 needs more bits than BF16 has.
  const auto x = model::make_tensor(DType::kBF16, {1, 2, 2}, std::vector<uint16_t>{0x3F80, 0, 0, 0x3F80});
  const auto residual = model::make_tensor(DType::kBF16, {1, 2, 2}, std::vector<uint16_t>{0x3B00, 0, 0x3F80, 0x3F80});
  const Dump dump = read({{"p2/layers.1.x", x}, {"p2/layers.1.residual", residual}}, "v32");
  ASSERT_EQ(dump.tensors.size(), 3U);
  EXPECT_TRUE(dump.unused.empty());
  const TensorView& output = dump.tensors.at("p2/layer.1.output");
  EXPECT_EQ(output.dtype, DType::kF32);
  EXPECT_EQ(output.shape, (Shape{2, 2}));
  EXPECT_EQ(model::to_double(output), (Values{1 + 0x1p-9, 0, 1, 2}));
  EXPECT_EQ(model::to_double(dump.tensors.at("p2/layer.1.ffn")), model::to_double(x));
  EXPECT_EQ(model::to_double(dump.tensors.at("p2/layer.1.attn_residual")), model::to_double(residual));
}

TEST(V32Format, TheV3LayerOutputIsTakenAsItIs) {
  const auto [name, tensor] = read_one({{"p2/layers.1", counting({1, 2, 2})}}, "v32");
  EXPECT_EQ(name, "p2/layer.1.output");
}

TEST(V32Format, TheFirstOfTwoNamesForOneOpIsUsed) {
  const Dump both =
      read({{"p2/layers.0.attn", counting({1, 2, 2})}, {"p2/layers.0.attn.wo", counting({1, 2, 2})}}, "v32");
  EXPECT_EQ(both.tensors.size(), 1U);
  EXPECT_EQ(both.unused, (std::vector<std::string>{"p2/layers.0.attn"}));
  const auto [name, tensor] = read_one({{"p2/layers.0.attn", counting({1, 2, 2})}}, "v32");
  EXPECT_EQ(name, "p2/layer.0.attn.o_proj");
}

TEST(V32Format, TheCacheJoinsBothParts) {
  const Dump dump =
      read({{"b/cache.0.kv_cache", counting({2, 2, 2})}, {"b/cache.0.pe_cache", counting({2, 2, 4})}}, "v32");
  ASSERT_EQ(dump.tensors.size(), 1U);
  EXPECT_EQ(dump.tensors.at("b/cache.0.latent").shape, (Shape{4, 6}));
  EXPECT_EQ(model::to_double(dump.tensors.at("b/cache.0.latent")),
            (Values{0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 6, 7, 4, 5, 8, 9, 10, 11, 6, 7, 12, 13, 14, 15}));
}

TEST(V32Format, HalfAPairIsUnused) {
  const Dump dump = read({{"p2/cache.0.kv_cache", counting({1, 2, 2})}}, "v32");
  EXPECT_TRUE(dump.tensors.empty());
  EXPECT_EQ(dump.unused.size(), 1U);
}

TEST(V32Format, PairsThatDoNotFitAreRefused) {
  EXPECT_NE(
      refusal({{"p2/cache.0.kv_cache", counting({1, 2, 2})}, {"p2/cache.0.pe_cache", counting({1, 1, 4})}}, "v32"), "");
  EXPECT_NE(refusal({{"p2/layers.0.x", counting({1, 2, 2})}, {"p2/layers.0.residual", counting({2, 2})}}, "v32"), "");
}

TEST(V32Format, NaiveDecodeHoldsKvBOfTheNewTokenOnly) {
  const auto [name, tensor] = read_one({{"d0/layers.0.attn.wkv_b", counting({1, 1, 4})}}, "v32");
  EXPECT_EQ(tensor.shape, (Shape{1, 4}));
}

TEST(V32Format, ExpertsHoldTheRowsOfTheirTokens) {
  const Dump dump = read({{"p2/layers.1.ffn.experts.1", counting({1, 2})},
                          {"p2/layers.1.ffn.experts.1.w1", counting({1, 2})},
                          {"p2/layers.1.ffn.experts.1.w3", counting({1, 2})},
                          {"p2/layers.1.ffn.experts.1.w2.in", counting({1, 2})}},
                         "v32");
  EXPECT_TRUE(dump.unused.empty());
  for (const char* op : {"", ".gate", ".up", ".act"}) {
    ASSERT_TRUE(dump.tensors.contains(std::string("p2/layer.1.moe.expert.1") + op)) << op;
  }
  EXPECT_NE(refusal({{"p2/layers.1.ffn.experts.1", counting({3, 2})}}, "v32"), "") << "more rows than tokens";
}

TEST(V32Format, CutAndFullLogitsGiveTheStoredRows) {
  const auto [cut_name, cut] = read_one({{"r/logits", counting({1, 2, 5})}}, "v32");
  EXPECT_EQ(cut.shape, (Shape{2, 5}));
  EXPECT_EQ(model::to_double(cut)[5], 5);
  const auto [full_name, full] = read_one({{"r/logits", counting({1, 4, 5})}}, "v32");
  EXPECT_EQ(full.shape, (Shape{2, 5}));
  EXPECT_EQ(model::to_double(full)[5], 15);  // row 3
}

}  // namespace
