#include "golden/formats.hpp"

#include "tests/golden/hand_written.hpp"

namespace {

using namespace hand_written;

TEST(Formats, NamesNobodyKnowsAreListedAsUnused) {
  const auto rows = counting({1, 2, 2});
  const std::vector<std::string> names{"const/freqs_cis",
                                       "embed",
                                       "p2/",
                                       "p2/layers.#.ffn",
                                       "p2/layers.1.ffn.experts.01",
                                       "p2/layers.1.ffn.experts.*",
                                       "p2/layers.01.ffn",
                                       "p2/layers.0.ffn.experts.0",
                                       "p2/layers.0.nothing",
                                       "p2/layers.1.ffn.experts.2",
                                       "p2/layers.2.ffn",
                                       "p2/layers.99999999999999999999.ffn",
                                       "p9/embed"};
  Tensors tensors;
  for (const std::string& name : names) {
    tensors.emplace_back(name, rows);
  }
  const Dump dump = read(tensors, "v32");
  EXPECT_TRUE(dump.tensors.empty());
  EXPECT_EQ(dump.unused.size(), names.size());
}

TEST(Formats, AnImpossibleShapeIsRefusedByNameAndExpectation) {
  const std::string message = refusal({{"p2/layers.0.attn.wq_a", counting({1, 2, 4})}}, "v32");
  EXPECT_NE(
      message.find("dump.safetensors: tensor p2/layers.0.attn.wq_a: expected [2, 3] for layer.0.attn.q_a, got [2, 4]"),
      std::string::npos)
      << message;
  EXPECT_NE(refusal({{"p2/embed", counting({1, 3, 2})}}, "v32"), "") << "three rows for two tokens";
  EXPECT_NE(refusal({{"p2/embed", counting({4})}}, "v32"), "") << "one extent";
  EXPECT_NE(refusal({{"p2/layers.0.attn.q_pe_rot", counting({2, 2, 4})}}, "v32"), "") << "three extents";
  EXPECT_NE(refusal({{"p2/model.layers.0.self_attn.q_rot", counting({1, 2, 2, 3})}}, "hf"), "") << "odd pairs";
  EXPECT_NE(refusal({{"p2/model.layers.0.self_attn.q_rot", counting({1, 2, 4, 2})}}, "hf"), "")
      << "tokens and pairs swapped";
}

TEST(Formats, AnImpossibleDtypeIsRefused) {
  const auto ids = model::make_tensor(model::DType::kI32, {2, 2}, std::vector<int32_t>{1, 2, 3, 4});
  EXPECT_NE(refusal({{"p2/embed", ids}}, "v32").find("expected F64, F32, BF16 or F16, got I32"), std::string::npos);
  EXPECT_NE(refusal({{"p2/layers.1.ffn.gate.indices", counting({2, 1})}}, "v32").find("expected I32 or I64, got F32"),
            std::string::npos);
}

TEST(Formats, OurOwnNamesAreTakenAsTheyAre) {
  const Dump dump =
      read({{"p2/anything", counting({3})}, {"r/logits", counting({4, 5})}, {"x/embed", counting({1})}}, "dsv3");
  EXPECT_EQ(dump.tensors.at("p2/anything").shape, (Shape{3}));
  EXPECT_EQ(dump.tensors.at("r/logits").shape, (Shape{2, 5})) << "full logits are cut to the stored rows";
  EXPECT_EQ(dump.unused, (std::vector<std::string>{"x/embed"}));
}

TEST(Formats, AnUnknownFormatListsTheKnownOnes) {
  EXPECT_EQ(
      refusal({{"p2/embed", counting({2, 2})}}, "onnx"),
      "format \"onnx\" is not known, expected one of dsv3, v32, official, hf, sglang, vllm or a map file NAME.json");
}

TEST(Formats, AMissingFileIsRefused) {
  EXPECT_THROW(golden::read_dump("no/such/file", "hf", tiny_config(), kCases), model::InputError);
}

}  // namespace
