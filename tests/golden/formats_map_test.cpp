// Map files: fused and stacked tensors, padding, steps. Expected values are positions in a counting tensor.
#include "golden/formats/map_file.hpp"

#include <gtest/gtest.h>

#include "tests/golden/hand_written.hpp"
#include "tests/model/hostile.hpp"

namespace {

using namespace hand_written;
using model::DType;
using Values = std::vector<double>;

// `rest` follows the rows, for example R"(, "padding": "tail")".
Dump read_mapped(const Tensors& tensors, const std::string& rows, const std::string& rest = "") {
  const TempDir folder;
  write_bytes(folder / "map.json", "{\"rows\": [" + rows + "]" + rest + "}");
  model::write_safetensors(folder / "dump.safetensors", tensors, {});
  return golden::read_dump(folder / "dump.safetensors", (folder / "map.json").string(), tiny_config(), kCases);
}

TensorView integers(Shape shape, std::vector<int64_t> values) {
  return model::make_tensor(DType::kI64, std::move(shape), std::move(values));
}

constexpr const char* kEmbed = R"({"foreign": "e", "ours": "embed"})";

TEST(MapFile, AFusedTensorGivesItsSlices) {
  // q_lora_rank 3, then the latent of 2 and the rope key of 4.
  const Dump dump = read_mapped({{"p2/fused.0", counting({2, 9})}, {"p2/gu.0", counting({2, 6})}},
                                R"({"foreign": "fused.#", "ours": "layer.#.attn.q_a", "slice": [0, "q_lora_rank"]},
                                   {"foreign": "fused.#", "ours": "layer.#.attn.kv_a", "slice": ["q_lora_rank", "end"]},
                                   {"foreign": "gu.#", "ours": "layer.#.mlp.gate", "slice": [0, "half"]},
                                   {"foreign": "gu.#", "ours": "layer.#.mlp.up", "slice": ["half", 6]})");
  EXPECT_TRUE(dump.unused.empty());
  EXPECT_EQ(model::to_double(dump.tensors.at("p2/layer.0.attn.q_a")), (Values{0, 1, 2, 9, 10, 11}));
  EXPECT_EQ(model::to_double(dump.tensors.at("p2/layer.0.attn.kv_a")),
            (Values{3, 4, 5, 6, 7, 8, 12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(model::to_double(dump.tensors.at("p2/layer.0.mlp.gate")), (Values{0, 1, 2, 6, 7, 8}));
  EXPECT_EQ(model::to_double(dump.tensors.at("p2/layer.0.mlp.up")), (Values{3, 4, 5, 9, 10, 11}));
}

constexpr const char* kIds = R"({"foreign": "ids", "ours": "layer.1.moe.topk_ids", "layout": "ids"},)";

TEST(MapFile, StackedExpertsLoseTheirPadding) {
  const Dump dump = read_mapped(
      {{"r/ids", integers({4, 1}, {1, 0, 1, 1})}, {"r/x", counting({2, 4, 2})}},
      std::string(kIds) + R"({"foreign": "x", "ours": "layer.1.moe.expert.*", "layout": "stacked_experts"})");
  EXPECT_EQ(model::to_double(dump.tensors.at("r/layer.1.moe.expert.0")), (Values{0, 1}));
  EXPECT_EQ(model::to_double(dump.tensors.at("r/layer.1.moe.expert.1")), (Values{8, 9, 10, 11, 12, 13}));
}

TEST(MapFile, ExpertSlotsGoToTheirExperts) {
  const Dump dump =
      read_mapped({{"r/ids", integers({4, 1}, {1, 0, 1, 1})}, {"r/x", counting({4, 1, 2})}},
                  std::string(kIds) + R"({"foreign": "x", "ours": "layer.1.moe.expert.*", "layout": "expert_slots"})");
  EXPECT_EQ(model::to_double(dump.tensors.at("r/layer.1.moe.expert.0")), (Values{2, 3}));
  EXPECT_EQ(model::to_double(dump.tensors.at("r/layer.1.moe.expert.1")), (Values{0, 1, 4, 5, 6, 7}));
}

TEST(MapFile, ExpertsWithoutIdsAreUnused) {
  const Dump dump = read_mapped({{"r/x", counting({2, 4, 2})}},
                                R"({"foreign": "x", "ours": "layer.1.moe.expert.*", "layout": "stacked_experts"})");
  EXPECT_TRUE(dump.tensors.empty());
  EXPECT_EQ(dump.unused, std::vector<std::string>{"r/x"});
}

TEST(MapFile, ExpertsThatDoNotFitTheIdsAreRefused) {
  const std::string row = std::string(kIds) + R"({"foreign": "x", "ours": "layer.1.moe.expert.*", "layout": )";
  const auto ids = integers({4, 1}, {1, 0, 1, 1});
  expect_fragment(refusal_of([&] {
                    read_mapped({{"r/ids", ids}, {"r/x", counting({2, 2, 2})}}, row + "\"stacked_experts\"}");
                  }),
                  "with 3 rows for expert 1");
  expect_fragment(refusal_of([&] {
                    read_mapped({{"r/ids", ids}, {"r/x", counting({3, 2})}}, row + "\"expert_slots\"}");
                  }),
                  "expected 4 rows");
}

TEST(MapFile, PositionsTellTokensFromPadding) {
  const std::string rest = R"(, "positions": "pos")";
  // Case b: two sequences of two. Left padding repeats a position, as transformers does it; then one long row with a tail.
  const Dump left =
      read_mapped({{"b/pos", integers({2, 3}, {1, 0, 1, 0, 1, 2})}, {"b/e", counting({2, 3, 2})}}, kEmbed, rest);
  EXPECT_EQ(model::to_double(left.tensors.at("b/embed")), (Values{2, 3, 4, 5, 6, 7, 8, 9}));
  const Dump tail =
      read_mapped({{"b/pos", integers({6}, {0, 1, 0, 1, 0, 0})}, {"b/e", counting({6, 2})}}, kEmbed, rest);
  EXPECT_EQ(model::to_double(tail.tensors.at("b/embed")), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
  expect_fragment(refusal_of([&] {
                    read_mapped({{"b/pos", integers({4}, {0, 1, 0, 2})}, {"b/e", counting({4, 2})}}, kEmbed, rest);
                  }),
                  "2 tokens from position 0 on for sequence 1");
}

TEST(MapFile, TheSideOfThePaddingIsEnough) {
  const Tensors padded{{"b/e", counting({2, 3, 2})}};
  EXPECT_EQ(model::to_double(read_mapped(padded, kEmbed, R"(, "padding": "left")").tensors.at("b/embed")),
            (Values{2, 3, 4, 5, 8, 9, 10, 11}));
  EXPECT_EQ(model::to_double(read_mapped(padded, kEmbed, R"(, "padding": "right")").tensors.at("b/embed")),
            (Values{0, 1, 2, 3, 6, 7, 8, 9}));
  EXPECT_EQ(model::to_double(read_mapped(padded, kEmbed, R"(, "padding": "tail")").tensors.at("b/embed")),
            (Values{0, 1, 2, 3, 4, 5, 6, 7}));
  expect_fragment(refusal_of([&] { read_mapped(padded, kEmbed); }), "expected [4, 2] for embed");
}

TEST(MapFile, StepsAreCasesInOrderUnlessTheMapSays) {
  const Tensors steps{{"5/e", counting({2, 2})}, {"9/e", counting({2, 2, 2})}};
  const Dump in_order = read_mapped(steps, kEmbed);
  EXPECT_EQ(in_order.tensors.at("p2/embed").shape, (Shape{2, 2}));
  EXPECT_EQ(in_order.tensors.at("b/embed").shape, (Shape{4, 2}));
  const Dump named = read_mapped(steps, kEmbed, R"(, "cases": {"9": "r"})");
  EXPECT_EQ(named.tensors.size(), 1U);
  EXPECT_EQ(named.tensors.at("r/embed").shape, (Shape{4, 2}));
  EXPECT_EQ(named.unused, std::vector<std::string>{"5/e"});
}

TEST(MapFile, LogitsOfTheLastTokensOnlyAreUnused) {
  const Dump dump = read_mapped({{"b/l", counting({2, 5})}}, R"({"foreign": "l", "ours": "logits"})");
  EXPECT_EQ(dump.unused, std::vector<std::string>{"b/l"});
}

// Tiny has two layers and one MTP layer.
TEST(MapFile, ALayerMayBeCountedFromElsewhere) {
  const Tensors tensors{
      {"p2/norm.0[1]", counting({2, 2})}, {"p2/norm.1[1]", counting({2, 2})}, {"p2/norm.2", counting({2, 2})}};
  const Dump dump = read_mapped(tensors,
                                R"({"foreign": "norm.#[1]", "ours": "layer.#.output", "shift": -1},
                                   {"foreign": "norm.#", "ours": "mtp.#.enorm", "shift": "-num_hidden_layers"})");
  EXPECT_TRUE(dump.tensors.contains("p2/layer.0.output"));
  EXPECT_TRUE(dump.tensors.contains("p2/mtp.0.enorm"));
  EXPECT_EQ(dump.unused, std::vector<std::string>{"p2/norm.0[1]"});  // nothing is before the first layer
}

TEST(MapFile, RowsAreRepeatedForAModuleElsewhere) {
  const Dump dump = read_mapped({{"p2/draft.2.block.out", counting({2, 2})}, {"p2/l.0.out", counting({2, 2})}},
                                R"({"foreign": "l.#.out", "ours": "layer.#.ffn"})",
                                R"(, "repeats": [{"foreign": "l.#", "with": "draft.#.block", "ours": "layer.#",
                                                  "by": "mtp.#.layer", "shift": "-num_hidden_layers"}])");
  EXPECT_TRUE(dump.tensors.contains("p2/layer.0.ffn"));
  EXPECT_TRUE(dump.tensors.contains("p2/mtp.0.layer.ffn"));
  EXPECT_TRUE(dump.unused.empty());
}

TEST(MapFile, TheFirstPositionsThatAreThereCount) {
  const Dump dump = read_mapped({{"b/pos", integers({6}, {0, 1, 0, 1, 0, 0})}, {"b/e", counting({6, 2})}},
                                kEmbed,
                                R"(, "positions": ["model.pos", "pos"])");
  EXPECT_EQ(model::to_double(dump.tensors.at("b/embed")), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(MapFile, MistakesAreNamed) {
  const auto refusal = [](const std::string& text) { return refusal_of([&] { golden::parse_map(text, "m.json"); }); };
  const auto row = [&](const std::string& text) { return refusal("{\"rows\": [" + text + "]}"); };
  expect_fragment(refusal("["), "m.json");
  expect_fragment(refusal("{}"), "expected a list \"rows\"");
  expect_fragment(refusal(R"({"rows": [], "layers": 3})"), "key \"layers\" is not known");
  expect_fragment(refusal(R"({"rows": [], "padding": "top"})"), "padding \"top\", expected left, right or tail");
  expect_fragment(refusal(R"({"rows": [], "cases": {"first": "p2"}})"), "\"first\", expected a step number");
  expect_fragment(refusal(R"({"rows": [], "cases": {"0": 2}})"), "\"0\" is number");
  expect_fragment(row("3"), "row 0: expected an object");
  expect_fragment(row(R"({"foreign": "x"})"), "row 0: expected \"foreign\" and \"ours\"");
  expect_fragment(row(R"({"foreign": "x", "ours": "y", "layout": "z"})"), "layout \"z\" is not known");
  expect_fragment(row(R"({"foreign": "x", "ours": "y.#"})"), "\"y.#\" has more # than \"x\"");
  expect_fragment(row(R"({"foreign": "x", "ours": "y", "layout": "join"})"), "\"second\" is needed");
  expect_fragment(row(R"({"foreign": "x", "ours": "y", "second": "z"})"), "\"second\" is needed");
  expect_fragment(row(R"({"foreign": "x", "ours": "y", "layout": "expert_slots"})"), ".expert.*");
  expect_fragment(row(R"({"foreign": "x", "ours": "y", "slice": [0]})"), "expected [begin, end]");
  expect_fragment(row(R"({"foreign": "x.#", "ours": "y.#", "shift": 1.5})"), "shift 1.5, expected an integer or");
  expect_fragment(row(R"({"foreign": "x.#", "ours": "y.#", "shift": "-1"})"), "shift \"-1\", expected an integer or");
  expect_fragment(refusal(R"({"rows": [], "positions": [3]})"), "\"positions\": expected names");
  expect_fragment(refusal(R"({"rows": [], "repeats": 3})"), "expected a list \"repeats\"");
  expect_fragment(refusal(R"({"rows": [], "repeats": [{"foreign": "x"}]})"), "repeats: expected \"foreign\", \"with\"");
  expect_fragment(row(R"({"foreign": "x", "ours": "y", "slice": [0, "third"]})"), "slice bound \"third\"");
  expect_fragment(refusal_of([] {
                    read_mapped({{"p2/e", counting({2, 2})}}, R"({"foreign": "e", "ours": "embed", "slice": [0, 3]})");
                  }),
                  "the slice [0, 3) does not lie in the last extent of [2, 2]");
}

TEST(MapFile, TheMapsOfTheProgramAreValid) {
  for (const golden::BuiltInMap& map : golden::built_in_maps()) {
    EXPECT_GT(golden::parse_map(map.text, std::string(map.name)).rows.size(), 50U) << map.name;
  }
}

}  // namespace
