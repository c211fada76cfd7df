#include "tools/text_commands.hpp"

#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "model/check.hpp"
#include "model/json_fields.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"
#include "tools/cli.hpp"
#include "tools/json_lines.hpp"
#include "tools/prompt_text.hpp"

namespace tools {
namespace {

using nlohmann::json;

void print_line(const json& line) {
  fmt::print("{}\n", line.dump());
}

std::vector<int32_t> read_ids(const JsonLine& line) {
  model::JsonFields fields(line.value, line.origin, "");
  if (!fields.has("ids") || !line.value.at("ids").is_array()) {
    fields.refuse("ids", "expected an array of token ids");
  }
  const auto wide = fields.integers("ids", 0);
  return {wide.begin(), wide.end()};
}

std::string read_text(const JsonLine& line) {
  model::JsonFields fields(line.value, line.origin, "");
  if (!fields.has("text")) {
    fields.refuse("text", "expected a string");
  }
  return fields.text_or("text", "");
}

}  // namespace

struct TextCommands::Flags {
  CLI::App* tokenize = nullptr;
  CLI::App* detokenize = nullptr;
  CLI::App* chat_template = nullptr;
  std::string tokenizer;
  std::string in;
  bool skip_special = false;
  bool thinking = false;

  void add_files(CLI::App& command, const std::string& line_format) {
    command.add_option("--tokenizer", tokenizer, "directory with tokenizer.json and tokenizer_config.json")->required();
    command.add_option("--in", in, "JSON lines, each " + line_format)->required();
  }

  int run_tokenize() const {
    const auto loaded = text::Tokenizer::load(tokenizer);
    for_each_json_line(in, [&](const JsonLine& line) {
      const std::string content = read_text(line);
      print_line({{"text", content}, {"ids", loaded.encode(content)}});
    });
    return kExitOk;
  }

  int run_detokenize() const {
    const auto loaded = text::Tokenizer::load(tokenizer);
    const auto special = skip_special ? text::SpecialTokens::kSkip : text::SpecialTokens::kKeep;
    for_each_json_line(in, [&](const JsonLine& line) {
      const auto ids = read_ids(line);
      print_line({{"ids", ids}, {"text", loaded.decode(ids, special)}});
    });
    return kExitOk;
  }

  int run_chat_template() const {
    const auto format = text::ChatTemplate::load(tokenizer);
    const auto loaded = text::Tokenizer::load(tokenizer);
    for_each_json_line(in, [&](const JsonLine& line) {
      model::JsonFields fields(line.value, line.origin, "");
      if (!fields.has("messages")) {
        fields.refuse("messages", "expected an array of messages");
      }
      text::ChatOptions options{.add_generation_prompt = fields.boolean_or("add_generation_prompt", false)};
      if (thinking || fields.has("thinking")) {
        options.thinking = fields.boolean_or("thinking", thinking);
      }
      const auto in_order = nlohmann::ordered_json::parse(line.text);
      options.tools = tools_of(in_order, format, line.origin);
      const std::string rendered = format.render(in_order.at("messages"), options, line.origin);
      print_line({{"text", rendered}, {"ids", loaded.encode(rendered)}});
    });
    return kExitOk;
  }
};

TextCommands::TextCommands(CLI::App& app) : flags_(std::make_unique<Flags>()) {
  Flags& flags = *flags_;
  flags.tokenize = app.add_subcommand("tokenize", "text to token ids");
  flags.add_files(*flags.tokenize, R"({"text": "..."})");
  flags.tokenize->footer(
      "\nWrites one line {\"text\", \"ids\"} for each line read. No BOS is put in front.\n"
      "Example:\n"
      "  $ echo '{\"text\": \"In the beginning\"}' > in.jsonl\n"
      "  $ dsv3-infer tokenize --tokenizer golden/data/mini/checkpoint --in in.jsonl\n"
      "  {\"ids\":[42,79,260,1968,1323],\"text\":\"In the beginning\"}\n");

  flags.detokenize = app.add_subcommand("detokenize", "token ids to text");
  flags.add_files(*flags.detokenize, R"({"ids": [...]})");
  flags.detokenize->add_flag("--skip-special-tokens", flags.skip_special, "leave special tokens out of the text");
  flags.detokenize->footer(
      "\nWrites one line {\"ids\", \"text\"} for each line read. Broken UTF-8 becomes U+FFFD; an id that no token has, "
      "nothing.\n"
      "Example:\n"
      "  $ dsv3-infer detokenize --tokenizer golden/data/mini/checkpoint --in ids.jsonl\n");

  flags.chat_template = app.add_subcommand("chat-template", "messages to the text and ids that a chat model continues");
  flags.add_files(*flags.chat_template,
                  R"({"messages": [...], "add_generation_prompt": true}, and tools if the format lists them)");
  flags.chat_template->add_flag(
      "--thinking",
      flags.thinking,
      "for formats with the choice (V3.1): let the answer begin with <think>; also `thinking` in a line");
  flags.chat_template->footer(
      "\nWrites one line {\"text\", \"ids\"} for each line read, in the checkpoint's chat format "
      "(docs/text.md).\n"
      "Example:\n"
      "  $ dsv3-infer chat-template --tokenizer DeepSeek-V3 --in chats.jsonl\n");
}

TextCommands::~TextCommands() = default;

bool TextCommands::parsed() const {
  return flags_->tokenize->parsed() || flags_->detokenize->parsed() || flags_->chat_template->parsed();
}

int TextCommands::run() const {
  if (flags_->tokenize->parsed()) {
    return flags_->run_tokenize();
  }
  return flags_->detokenize->parsed() ? flags_->run_detokenize() : flags_->run_chat_template();
}

}  // namespace tools
