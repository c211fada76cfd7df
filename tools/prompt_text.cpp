#include "tools/prompt_text.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "text/utf8.hpp"
#include "tools/synthetic/argument.hpp"

namespace tools {

std::optional<text::Tokenizer> tokenizer_of(const std::string& checkpoint) {
  if (synthetic::is_synthetic(checkpoint) ||
      !std::filesystem::exists(std::filesystem::path(checkpoint) / "tokenizer.json")) {
    return {};
  }
  return text::Tokenizer::load(checkpoint);
}

void check_prompt_text(const std::string& text, const std::string& what) {
  if (text.empty()) {
    model::throw_input_error("{}: the prompt is empty", what);
  }
  if (const size_t broken_at = text::find_broken_utf8(text); broken_at != std::string::npos) {
    model::throw_input_error("{}: expected UTF-8, byte {} is not", what, broken_at);
  }
}

std::vector<int32_t> prompt_ids(const text::Tokenizer& tokenizer, const std::string& text, const std::string& what) {
  check_prompt_text(text, what);
  auto ids = tokenizer.encode(text);
  const auto bos = tokenizer.bos_id();
  if (tokenizer.adds_bos() && bos && (ids.empty() || ids[0] != *bos)) {
    ids.insert(ids.begin(), *bos);
  }
  return ids;
}

const nlohmann::ordered_json* tools_of(const nlohmann::ordered_json& conversation,
                                       const text::ChatTemplate& format,
                                       const std::string& what) {
  if (!conversation.contains("tools") || conversation.at("tools").is_null()) {
    return nullptr;
  }
  if (!format.reads_tools()) {
    fmt::print(stderr, "{}: tools are left out: this checkpoint's chat format has no place for them\n", what);
  }
  return &conversation.at("tools");
}

}  // namespace tools
