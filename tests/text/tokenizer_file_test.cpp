// A tokenizer.json that is broken, or says what we do not do, is refused with one line that names the field.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "tests/paths.hpp"
#include "tests/temp_dir.hpp"
#include "text/tokenizer.hpp"

namespace {

using nlohmann::json;

const std::filesystem::path kMini = source_dir() / "golden/data/mini/checkpoint";

const json& mini_file() {
  static const json kFile = json::parse(read_bytes(kMini / "tokenizer.json"));
  return kFile;
}

class TokenizerFile : public testing::Test {
 protected:
  // What load() says about this text; empty when it takes it.
  std::string refusal(const std::string& bytes) {
    write_bytes(folder_ / "tokenizer.json", bytes);
    try {
      text::Tokenizer::load(folder_.path());
      return "";
    } catch (const model::InputError& error) {
      return error.what();
    }
  }

  std::string refusal(const std::function<void(json&)>& change) {
    json file = mini_file();
    change(file);
    return refusal(file.dump());
  }

  TempDir folder_;
};

TEST_F(TokenizerFile, WhatIsBrokenOrUnknownIsRefusedByName) {
  const std::vector<std::pair<std::string, std::function<void(json&)>>> cases = {
      {"truncation",
       [](json& f) {
         f["truncation"] = {{"max_length", 5}};
       }},
      {"normalizer.type",
       [](json& f) {
         f["normalizer"] = {{"type", "NFC"}};
       }},
      {"normalizer.normalizers[0].type",
       [](json& f) {
         f["normalizer"]["normalizers"] = {{{"type", "Lowercase"}}};
       }},
      {"pre_tokenizer", [](json& f) { f["pre_tokenizer"] = nullptr; }},
      {"pre_tokenizer.type",
       [](json& f) {
         f["pre_tokenizer"] = {{"type", "Metaspace"}};
       }},
      {"pretokenizers[0].behavior", [](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; }},
      {"pretokenizers[0].invert", [](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["invert"] = true; }},
      {"\\w", [](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+"; }},
      {"\\p{Han}", [](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\p{Han}"; }},
      {"&&", [](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[a-z&&b]"; }},
      {"pattern (a", [](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a"; }},
      {"pretokenizers[3].add_prefix_space",
       [](json& f) { f["pre_tokenizer"]["pretokenizers"][3]["add_prefix_space"] = true; }},
      {"pretokenizers[0].new", [](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["new"] = 1; }},
      {"decoder.type",
       [](json& f) {
         f["decoder"] = {{"type", "WordPiece"}};
       }},
      {"post_processor.type",
       [](json& f) {
         f["post_processor"] = {{"type", "BertProcessing"}};
       }},
      {"model is missing", [](json& f) { f.erase("model"); }},
      {"model.type", [](json& f) { f["model"]["type"] = "Unigram"; }},
      {"model.dropout", [](json& f) { f["model"]["dropout"] = 0.1; }},
      {"model.byte_fallback", [](json& f) { f["model"]["byte_fallback"] = true; }},
      {"model.end_of_word_suffix", [](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }},
      {"model.future", [](json& f) { f["model"]["future"] = 1; }},
      {"model.vocab", [](json& f) { f["model"]["vocab"] = json::array(); }},
      {"byte 97", [](json& f) { f["model"]["vocab"].erase("a"); }},
      {"id of its own", [](json& f) { f["model"]["vocab"]["a"] = f["model"]["vocab"]["b"]; }},
      {"token a: expected an id", [](json& f) { f["model"]["vocab"]["a"] = -1; }},
      {"model.merges[0]", [](json& f) { f["model"]["merges"][0] = "alone"; }},
      {"model.merges[1] names",
       [](json& f) {
         f["model"]["merges"][1] = {"q", "q"};
       }},
      {"added_tokens[0].id", [](json& f) { f["added_tokens"][0]["id"] = 7; }},
      {"added_tokens[1].single_word", [](json& f) { f["added_tokens"][1]["single_word"] = true; }},
      {"added_tokens[2].id", [](json& f) { f["added_tokens"].push_back(f["added_tokens"][0]); }},
  };
  for (const auto& [name, change] : cases) {
    const std::string message = refusal(change);
    EXPECT_NE(message.find(name), std::string::npos) << name << " in: " << message;
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST_F(TokenizerFile, CutAndEmptyFilesAreRefused) {
  const std::string whole = mini_file().dump();
  for (const size_t num_bytes : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_NE(refusal(whole.substr(0, num_bytes)).find("not valid JSON"), std::string::npos) << num_bytes;
  }
  EXPECT_NE(refusal("[]").find("expected a JSON object"), std::string::npos);
  EXPECT_EQ(refusal(whole), "");
}

TEST_F(TokenizerFile, AMarkThatIsNoTokenIsRefused) {
  write_bytes(folder_ / "tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_NE(refusal(mini_file().dump()).find("tokenizer_config.json: bos_token"), std::string::npos);
}

// Of the pipeline around the vocabulary: strips, tokens that are not special, a template that puts BOS in front.
TEST_F(TokenizerFile, AddedTokensTakeWhiteSpaceAlongAndATemplateSetsBos) {
  json file = mini_file();
  file["added_tokens"].push_back(
      {{"id", 2048}, {"content", "<go>"}, {"lstrip", true}, {"rstrip", true}, {"special", false}});
  file["added_tokens"].push_back({{"id", 2049}, {"content", "<go>>"}, {"normalized", false}, {"special", true}});
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<go>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}}}}}}};
  write_bytes(folder_ / "tokenizer.json", file.dump());
  const auto tokenizer = text::Tokenizer::load(folder_.path());
  EXPECT_EQ(tokenizer.encode("a \u3000<go> \n b"), (std::vector<int32_t>{66, 2048, 67}));
  // The longer one is looked for first, although the other begins at the same place: it is not normalized.
  EXPECT_EQ(tokenizer.encode("<go>>a"), (std::vector<int32_t>{2049, 66}));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{66, 2048, 2049}, text::SpecialTokens::kSkip), "a<go>");
  EXPECT_EQ(tokenizer.bos_id(), 2048);
  EXPECT_TRUE(tokenizer.adds_bos());
}

}  // namespace
