// The published tokenizer and chat template against goldens of Hugging Face tokenizers and transformers.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/shared_data.hpp"
#include "tests/temp_dir.hpp"
#include "text/chat_template.hpp"
#include "text/stream_decoder.hpp"
#include "text/tokenizer.hpp"

namespace {

using nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

class TokenizerOracle : public testing::Test {
 protected:
  void SetUp() override {
    const auto data = shared_data("oracle/tokenizer");
    SKIP_UNLESS_THERE(data);
    data_ = *data;
    const std::string unpack =
        "gzip -dc '" + (data_ / "tokenizer.json.gz").string() + "' > '" + (folder_ / "tokenizer.json").string() + "'";
    ASSERT_EQ(std::system(unpack.c_str()), 0);
    std::filesystem::copy_file(data_ / "tokenizer_config.json", folder_ / "tokenizer_config.json");
  }

  std::vector<ordered_json> lines(const std::string& name) const {
    std::ifstream file(data_ / name);
    std::vector<ordered_json> result;
    for (std::string line; std::getline(file, line);) {
      result.push_back(ordered_json::parse(line));
    }
    return result;
  }

  std::filesystem::path data_;
  TempDir folder_;
};

TEST_F(TokenizerOracle, EveryGoldenAgrees) {
  const auto tokenizer = text::Tokenizer::load(folder_.path());
  EXPECT_EQ(tokenizer.vocab_size(), 128815);
  const auto encoded = lines("encode_dev.jsonl");
  EXPECT_GE(encoded.size(), 100U);
  for (const auto& golden : encoded) {
    const Ids ids = tokenizer.encode(golden.at("text").get<std::string>());
    EXPECT_EQ(ids, golden.at("ids").get<Ids>()) << golden;
    EXPECT_EQ(tokenizer.decode(ids), golden.at("decoded").get<std::string>()) << golden;
  }
  const auto decoded = lines("decode_dev.jsonl");
  EXPECT_GE(decoded.size(), 40U);
  for (const auto& golden : decoded) {
    const Ids ids = golden.at("ids").get<Ids>();
    EXPECT_EQ(tokenizer.decode(ids), golden.at("decoded").get<std::string>()) << golden;
    EXPECT_EQ(tokenizer.decode(ids, text::SpecialTokens::kSkip), golden.at("decoded_skip_special").get<std::string>());
  }
  const auto chat = text::ChatTemplate::load(folder_.path());
  const auto chats = lines("chat_dev.jsonl");
  EXPECT_GE(chats.size(), 12U);
  for (const auto& golden : chats) {
    const text::ChatOptions options{.add_generation_prompt = golden.at("add_generation_prompt").get<bool>(),
                                    .thinking = {}};
    const std::string rendered = chat.render(golden.at("messages"), options, "golden");
    EXPECT_EQ(rendered, golden.at("text").get<std::string>());
    EXPECT_EQ(tokenizer.encode(rendered), golden.at("ids").get<Ids>());
  }
}

}  // namespace
