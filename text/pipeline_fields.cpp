#include "text/pipeline_fields.hpp"

#include <functional>

#include "model/check.hpp"
#include "model/printable.hpp"

namespace text {
namespace {

using model::JsonFields;
using nlohmann::json;

// Source: GPT-2's encoder.py, as Hugging Face's ByteLevel has it.
constexpr const char* kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// Calls `visit` for the step that `key` holds, or for each one in order if it is a sequence of them (its list is `list_key`).
void for_each_step(JsonFields& top,
                   const char* key,
                   const char* list_key,
                   const std::function<void(const std::string& type, JsonFields& fields)>& visit) {
  auto fields = top.object(key);
  if (!fields) {
    return;
  }
  const std::string type = fields->text_or("type", "");
  if (type != "Sequence") {
    visit(type, *fields);
    refuse_unread(*fields);
    return;
  }
  for (JsonFields& step : fields->objects(list_key)) {
    visit(step.text_or("type", ""), step);
    refuse_unread(step);
  }
  refuse_unread(*fields);
}

Regex read_split(JsonFields& fields) {
  if (fields.text_or("behavior", "") != "Isolated") {
    fields.refuse("behavior", "expected Isolated");
  }
  refuse_unless_false(fields, {"invert"});
  auto pattern = fields.object("pattern");
  if (!pattern || !pattern->has("Regex")) {
    fields.refuse("pattern", "expected an object with Regex");
  }
  Regex regex(pattern->text_or("Regex", ""), pattern->name("Regex"));
  refuse_unread(*pattern);
  return regex;
}

}  // namespace

void refuse_unless_null(JsonFields& fields, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (fields.has(key)) {
      fields.refuse(key, "expected null");
    }
  }
}

void refuse_unless_false(JsonFields& fields, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (fields.boolean_or(key, false)) {
      fields.refuse(key, "expected false");
    }
  }
}

void refuse_unread(const JsonFields& fields) {
  if (const auto unread = fields.unread_keys(); !unread.empty()) {
    fields.fail(fmt::format("{} is not known here", model::printable_list(unread)));
  }
}

void read_normalizer(JsonFields& top) {
  for_each_step(top, "normalizer", "normalizers", [](const std::string&, const JsonFields& fields) {
    fields.refuse("type", "expected no normalizer");
  });
}

std::vector<Regex> read_pre_tokenizer(JsonFields& top) {
  std::vector<Regex> splits;
  bool is_complete = false;
  for_each_step(top, "pre_tokenizer", "pretokenizers", [&](const std::string& type, JsonFields& fields) {
    if (is_complete) {
      fields.refuse("type", "expected nothing after ByteLevel");
    }
    if (type == "Split") {
      splits.push_back(read_split(fields));
    } else if (type == "Digits") {
      const bool each_alone = fields.boolean_or("individual_digits", false);
      splits.emplace_back(each_alone ? "\\p{N}" : "\\p{N}+", "Digits");
    } else if (type == "ByteLevel") {
      refuse_unless_false(fields, {"add_prefix_space"});
      fields.ignore({"trim_offsets"});
      if (fields.boolean_or("use_regex", true)) {
        splits.emplace_back(kGpt2Pattern, "ByteLevel");
      }
      is_complete = true;
    } else {
      fields.refuse("type", "expected Split, Digits or ByteLevel");
    }
  });
  if (!is_complete) {
    top.fail("pre_tokenizer: expected one that ends with ByteLevel");
  }
  return splits;
}

void read_decoder(JsonFields& top) {
  bool is_byte_level = false;
  for_each_step(top, "decoder", "decoders", [&](const std::string& type, JsonFields& fields) {
    if (type != "ByteLevel" || is_byte_level) {
      fields.refuse("type", "expected one ByteLevel");
    }
    fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});  // say nothing about decoding
    is_byte_level = true;
  });
  if (!is_byte_level) {
    top.fail("decoder: expected ByteLevel");
  }
}

std::optional<std::string> read_post_processor(JsonFields& top) {
  std::optional<std::string> prefix;
  for_each_step(top, "post_processor", "processors", [&](const std::string& type, JsonFields& fields) {
    if (type == "ByteLevel") {
      fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});
      return;
    }
    if (type != "TemplateProcessing" || prefix) {
      fields.refuse("type", "expected ByteLevel, or one TemplateProcessing");
    }
    fields.ignore({"pair", "special_tokens"});
    auto parts = fields.objects("single");
    std::optional<JsonFields> token = parts.empty() ? std::nullopt : parts[0].object("SpecialToken");
    if (parts.size() != 2 || !token || !parts[1].has("Sequence")) {
      fields.fail("post_processor: expected a TemplateProcessing whose `single` is a SpecialToken and a Sequence");
    }
    prefix = token->text_or("id", "");
  });
  return prefix;
}

}  // namespace text
