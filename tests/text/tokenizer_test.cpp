// The tokenizer of the small checkpoint. Expected ids and texts: Hugging Face tokenizers 0.23.3 on the same tokenizer.json.
#include "text/tokenizer.hpp"
#include "tests/paths.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "text/stream_decoder.hpp"

namespace {

using text::SpecialTokens;
using Ids = std::vector<int32_t>;

const std::filesystem::path kMini = source_dir() / "golden/data/mini";

const text::Tokenizer& mini() {
  static const text::Tokenizer kTokenizer = text::Tokenizer::load(kMini / "checkpoint");
  return kTokenizer;
}

TEST(Tokenizer, TheStoredPromptsHaveTheStoredIds) {
  std::ifstream file(kMini / "prompts.jsonl");
  int num_prompts = 0;
  for (std::string line; std::getline(file, line); ++num_prompts) {
    const auto prompt = nlohmann::json::parse(line);
    Ids ids = {*mini().bos_id()};
    const Ids encoded = mini().encode(prompt.at("text").get<std::string>());
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    EXPECT_EQ(ids, prompt.at("ids").get<Ids>()) << line;
    EXPECT_EQ(mini().decode(prompt.at("output_ids").get<Ids>()), prompt.at("output_text").get<std::string>());
  }
  EXPECT_EQ(num_prompts, 8);
}

TEST(Tokenizer, EncodesAsHuggingFaceDoes) {
  const std::vector<std::pair<std::string, Ids>> cases = {
      {"", {}},
      {"In the beginning God", {42, 79, 260, 1968, 1323, 400}},
      {"  two  blanks\n\n", {222, 711, 222, 764, 301, 1814, 591}},
      {"1234567 and 3.14", {610, 20, 2023, 23, 24, 269, 222, 20, 15, 625}},
      {"\u4e2d\u6587\u30c6\u30b9\u30c8", {162, 118, 257, 164, 246, 231, 161, 227, 230, 161, 226, 119, 161, 227, 232}},
      {"e\u0301\U0001F468\u200d\U0001F469", {70, 138, 225, 174, 255, 241, 103, 160, 224, 237, 174, 255, 241, 104}},
      {std::string("a\0b\r\nc", 6), {66, 190, 67, 203, 200, 68}},
      {"\"Lord\", he said; <<go>>", {3, 45, 384, 3, 13, 312, 387, 28, 222, 29, 29, 72, 80, 31, 31}},
      // Where PCRE2 by itself differs: U+180E is no white space, U+2EBF0 came with Unicode 15.1.
      {"\u180e a\u0085b", {159, 256, 238, 261, 128, 229, 67}},
      {"\U0002EBF0\U0002EBF1x", {174, 108, 109, 110, 174, 108, 109, 111, 89}},
  };
  for (const auto& [string, ids] : cases) {
    EXPECT_EQ(mini().encode(string), ids) << string;
    EXPECT_EQ(mini().decode(ids), string);
  }
}

TEST(Tokenizer, SpecialTokensAreFoundInsideTextAndCanBeSkipped) {
  const std::string string = "<\uff5cend\u2581of\u2581sentence\uff5c>x<\uff5cbegin\u2581of\u2581sentence\uff5c>";
  EXPECT_EQ(mini().encode(string), (Ids{1, 89, 0}));
  EXPECT_EQ(mini().decode(Ids{1, 89, 0}), string);
  EXPECT_EQ(mini().decode(Ids{1, 89, 0}, SpecialTokens::kSkip), "x");
}

TEST(Tokenizer, BrokenUtf8IsReplacedAndIdsWithoutTokenAreNothing) {
  EXPECT_EQ(mini().decode(Ids{225, 128, 129}), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(mini().decode(Ids{127, 300, 127}), "\ufffd And\ufffd");
  EXPECT_EQ(mini().decode(Ids{170, 170, 2047, 2048, 5000}, SpecialTokens::kSkip), "\ufffd\ufffdteth");
  EXPECT_THROW(static_cast<void>(mini().decode(Ids{-1})), model::InputError);
}

TEST(Tokenizer, KnowsItsSizeAndItsMarks) {
  EXPECT_EQ(mini().vocab_size(), 2048);
  EXPECT_EQ(mini().bos_id(), 0);
  EXPECT_EQ(mini().eos_id(), 1);
  EXPECT_TRUE(mini().adds_bos());
}

TEST(Tokenizer, TextThatIsNotUtf8IsRefused) {
  for (const char* broken : {"a\xff", "\xed\xa0\x80", "\xc0\x80", "\xf5\x80\x80\x80", "\xe4\xb8"}) {
    EXPECT_THROW(static_cast<void>(mini().encode(broken)), model::InputError) << broken;
  }
}

// All byte values: each id below 258 is a byte or a mark, so any order of them makes whole, broken and cut characters.
TEST(StreamDecoder, PiecesTogetherAreTheWholeText) {
  Ids ids;
  uint32_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 1664525 + 1013904223;
    ids.push_back(static_cast<int32_t>((state >> 8U) % (i % 3 == 0 ? 2100 : 258)));
  }
  for (const auto special : {SpecialTokens::kKeep, SpecialTokens::kSkip}) {
    text::StreamDecoder decoder(mini(), special);
    std::string all;
    for (const int32_t id : ids) {
      all += decoder.add(id);
    }
    all += decoder.finish();
    EXPECT_EQ(all, mini().decode(ids, special));
  }
}

TEST(StreamDecoder, HoldsACharacterBackUntilItIsComplete) {
  text::StreamDecoder decoder(mini());
  EXPECT_EQ(decoder.add(162), "");  // the three bytes of U+4E2D
  EXPECT_EQ(decoder.add(118), "");
  EXPECT_EQ(decoder.add(257), "\u4e2d");
  EXPECT_EQ(decoder.add(162), "");
  EXPECT_EQ(decoder.finish(), "\ufffd");
  EXPECT_EQ(decoder.finish(), "");
}

// Quadratic work would take minutes here.
TEST(Tokenizer, LongTextsWithoutABreakComeBack) {
  const std::vector<std::string> texts = {
      std::string(200'000, 'a'), std::string(200'000, ' ') + "x", std::string(200'000, '='), std::string(200'000, '7')};
  for (const std::string& string : texts) {
    EXPECT_EQ(mini().decode(mini().encode(string)), string);
  }
}

}  // namespace
