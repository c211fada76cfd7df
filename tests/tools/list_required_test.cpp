// What list-required prints, and that a dump of the writer for other people's engines is read back.
#include "tools/list_required.hpp"

#include <gtest/gtest.h>

#include "golden/formats.hpp"
#include "tests/golden/hand_written.hpp"
#include "tools/dump_writer.hpp"

namespace tools {
namespace {

// The words of the line that begins with `foreign`.
std::string line_of(const std::string& text, const std::string& foreign) {
  const size_t begin = ("\n" + text).find("\n" + foreign);
  if (begin == std::string::npos) {
    return "";
  }
  std::string words;
  for (const char c : text.substr(begin, text.find('\n', begin) - begin)) {
    if (c != ' ' || (!words.empty() && words.back() != ' ')) {
      words += c;
    }
  }
  return words;
}

TEST(ListRequired, NamesTheForeignTensorOursAndTheShape) {
  EXPECT_EQ(line_of(required_text("v32"), "layers.L.attn.wq_a "),
            "layers.L.attn.wq_a layer.L.attn.q_a tokens x q_lora");
  EXPECT_EQ(line_of(required_text("official"), "layers.L.ffn.experts.E.w1 "),
            "layers.L.ffn.experts.E.w1 layer.L.moe.expert.E.gate the expert's tokens x moe_intermediate");
  EXPECT_EQ(line_of(required_text("sglang"), "model.layers.L.self_attn.fused_qkv_a_proj_with_mqa columns q"),
            "model.layers.L.self_attn.fused_qkv_a_proj_with_mqa columns q_lora_rank to end layer.L.attn.kv_a "
            "tokens x (kv_lora + rope)");
  EXPECT_EQ(line_of(required_text("dsv3"), "cache.L.latent "),
            "cache.L.latent cache.L.latent cached positions x (kv_lora + rope)");
}

TEST(ListRequired, EveryFormatHasALineForTheEnds) {
  for (const std::string& format : golden::known_formats()) {
    const std::string text = required_text(format);
    EXPECT_NE(text.find(" embed "), std::string::npos) << format;
    EXPECT_NE(text.find(" logits "), std::string::npos) << format;
  }
}

TEST(ListRequired, UnknownFormatsAreRefused) {
  EXPECT_THROW(required_text("onnx"), model::InputError);
}

TEST(DumpWriter, ADumpOfTheHeaderIsReadBack) {
  const TempDir folder;
  const std::vector<float> values{1, 2, 3, 4};
  dump_writer::Dump dump;
  dump.add("p2", "embed", "F32", {2, 2}, values.data(), sizeof(float) * values.size());
  dump.add("p2", "layer.0.ffn", "F32", {2, 2}, values.data(), sizeof(float) * values.size());
  dump.write(folder / "mine.safetensors");
  const golden::Dump read =
      golden::read_dump(folder / "mine.safetensors", "dsv3", hand_written::tiny_config(), hand_written::kCases);
  EXPECT_TRUE(read.unused.empty());
  EXPECT_EQ(read.tensors.size(), 2U);
  EXPECT_EQ(model::to_double(read.tensors.at("p2/embed")), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(read.tensors.at("p2/layer.0.ffn").shape, (model::Shape{2, 2}));
}

}  // namespace
}  // namespace tools
