#include "text/tokenizer_file.hpp"

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "model/check.hpp"
#include "model/json_fields.hpp"
#include "model/mapped_file.hpp"
#include "model/printable.hpp"
#include "model/strict_json.hpp"
#include "text/byte_level.hpp"
#include "text/pipeline_fields.hpp"

namespace text {
namespace {

using model::JsonFields;
using nlohmann::json;

constexpr size_t kMaxDepth = 16;
constexpr int64_t kMaxId = (1 << 20) - 1;

json read_object(const std::filesystem::path& path) {
  const auto file = model::MappedFile::open(path);
  json document = model::parse_strict_json(file->text(), path.string(), kMaxDepth);
  if (!document.is_object()) {
    model::throw_input_error("{}: expected a JSON object", path.string());
  }
  return document;
}

class Reader {
 public:
  Reader(const json& document, std::string origin) : document_(document), origin_(std::move(origin)) {}

  TokenizerFile read() {
    JsonFields top(document_, origin_, "");
    refuse_unless_null(top, {"truncation", "padding"});
    top.ignore({"version"});
    read_normalizer(top);
    file_.splits = read_pre_tokenizer(top);
    read_decoder(top);
    auto model_fields = top.object("model");
    if (!model_fields) {
      top.fail("model is missing");
    }
    read_model(*model_fields, document_.at("model"));
    read_added_tokens(top);
    const std::optional<std::string> prefix = read_post_processor(top);
    refuse_unread(top);
    if (prefix) {
      file_.bos_id = id_of(*prefix, "post_processor");
      file_.adds_bos = true;
    }
    return std::move(file_);
  }

  // tokenizer_config.json of the same directory.
  void read_config(const json& config, const std::string& config_origin, TokenizerFile& file) const {
    JsonFields fields(config, config_origin, "");
    const auto id_named = [&](const std::string& key) -> std::optional<int32_t> {
      if (!fields.has(key)) {
        return std::nullopt;
      }
      const json& value = config.at(key);
      const json& content = value.is_object() && value.contains("content") ? value.at("content") : value;
      if (!content.is_string()) {
        fields.refuse(key, "expected a token, or an object with its content");
      }
      const auto found = ids_.find(content.get<std::string>());
      if (found == ids_.end()) {
        fields.refuse(key, "expected a token of tokenizer.json");
      }
      return found->second;
    };
    if (const auto bos = id_named("bos_token")) {
      file.bos_id = bos;
    }
    file.eos_id = id_named("eos_token");
    if (fields.boolean_or("add_bos_token", file.adds_bos)) {
      if (!file.bos_id) {
        fields.refuse("add_bos_token", "expected a bos_token beside it");
      }
      file.adds_bos = true;
    }
    if (fields.boolean_or("add_eos_token", false)) {
      fields.refuse("add_eos_token", "expected false");
    }
  }

 private:
  int32_t id_of(const std::string& token, const std::string& where) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) {
      model::throw_input_error(
          "{}: {} names {}, which is not in the vocabulary", origin_, where, model::printable(token));
    }
    return found->second;
  }

  void add_id(const std::string& token, int32_t id, const std::string& where) {
    if (std::cmp_greater_equal(id, file_.tokens.size())) {
      file_.tokens.resize(static_cast<size_t>(id) + 1);
    }
    std::string& slot = file_.tokens[static_cast<size_t>(id)];
    if (token.empty() || !slot.empty()) {
      model::throw_input_error("{}: {} token '{}' has id {}: expected a token that is not empty, and an id of its own",
                               origin_,
                               where,
                               model::printable(token),
                               id);
    }
    slot = token;
    ids_.emplace(token, id);
  }

  void read_model(JsonFields& fields, const json& object) {
    if (fields.text_or("type", "BPE") != "BPE") {
      fields.refuse("type", "expected BPE");
    }
    refuse_unless_null(fields, {"dropout", "unk_token"});
    refuse_unless_false(fields, {"byte_fallback"});
    fields.ignore({"fuse_unk"});  // about unk_token, which is not there
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!fields.text_or(key, "").empty()) {
        fields.refuse(key, "expected none");
      }
    }
    if (!fields.has("vocab") || !object.at("vocab").is_object()) {
      fields.fail("model.vocab: expected an object of tokens and ids");
    }
    for (const auto& [token, id] : object.at("vocab").items()) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kMaxId) {
        fields.fail(fmt::format("model.vocab: token {}: expected an id of 0 to {}", model::printable(token), kMaxId));
      }
      add_id(token, id.get<int32_t>(), "model.vocab:");
    }
    for (size_t byte = 0; byte < file_.bpe.byte_ids.size(); ++byte) {
      const auto found = ids_.find(byte_level_symbol(static_cast<uint8_t>(byte)));
      if (found == ids_.end()) {
        fields.fail(fmt::format("model.vocab: no token for byte {}: expected all 256", byte));
      }
      file_.bpe.byte_ids[byte] = found->second;
    }
    if (!fields.has("merges") || !object.at("merges").is_array()) {
      fields.fail("model.merges: expected an array");
    }
    read_merges(object.at("merges"));
    if (fields.boolean_or("ignore_merges", false)) {
      for (const auto& [token, id] : ids_) {
        if (auto bytes = byte_level_bytes(token)) {
          file_.bpe.whole_pieces.emplace(std::move(*bytes), id);
        }
      }
    }
    refuse_unread(fields);
  }

  void read_merges(const json& merges) {
    file_.bpe.merges.reserve(merges.size());
    for (const json& merge : merges) {
      const std::string where = fmt::format("model.merges[{}]", file_.bpe.merges.size());
      std::string left;
      std::string right;
      if (merge.is_string()) {
        const auto& both = merge.get_ref<const std::string&>();
        const size_t space = both.find(' ');
        left = both.substr(0, space);
        right = space == std::string::npos ? "" : both.substr(space + 1);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      }
      if (left.empty() || right.empty()) {
        model::throw_input_error("{}: {}: expected two tokens, as \"a b\" or [\"a\", \"b\"]", origin_, where);
      }
      file_.bpe.merges.push_back({id_of(left, where), id_of(right, where), id_of(left + right, where)});
    }
  }

  void read_added_tokens(JsonFields& top) {
    std::vector<bool> is_added(static_cast<size_t>(kMaxId) + 1);
    for (JsonFields& fields : top.objects("added_tokens")) {
      AddedToken token{.id = static_cast<int32_t>(fields.integer("id", 0, kMaxId)),
                       .content = fields.text_or("content", ""),
                       .is_special = fields.boolean_or("special", false),
                       .is_normalized = fields.boolean_or("normalized", true),
                       .strips_left = fields.boolean_or("lstrip", false),
                       .strips_right = fields.boolean_or("rstrip", false)};
      refuse_unless_false(fields, {"single_word"});
      refuse_unread(fields);
      if (const auto found = ids_.find(token.content); found == ids_.end()) {
        add_id(token.content, token.id, "added_tokens:");
      } else if (found->second != token.id) {
        fields.refuse("id", fmt::format("expected {}, as the vocabulary has it", found->second));
      }
      if (is_added[static_cast<size_t>(token.id)]) {
        fields.refuse("id", "expected a token that is not added twice");
      }
      is_added[static_cast<size_t>(token.id)] = true;
      file_.added.push_back(std::move(token));
    }
  }

  const json& document_;
  std::string origin_;
  TokenizerFile file_;
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace

TokenizerFile read_tokenizer_file(const std::filesystem::path& directory) {
  const auto path = directory / "tokenizer.json";
  const json document = read_object(path);
  Reader reader(document, path.string());
  TokenizerFile file = reader.read();
  if (const auto config_path = directory / "tokenizer_config.json"; std::filesystem::exists(config_path)) {
    reader.read_config(read_object(config_path), config_path.string(), file);
  }
  return file;
}

}  // namespace text
