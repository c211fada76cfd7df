#include "text/chat_template.hpp"

#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "model/json_fields.hpp"
#include "model/mapped_file.hpp"
#include "model/strict_json.hpp"
#include "text/template_parser.hpp"
#include "text/template_runner.hpp"

namespace text {
namespace {

using nlohmann::json;

// A token as tokenizer_config.json names it: its text, or an object that holds it.
std::string token_text(const json& config, const char* key) {
  if (!config.contains(key)) {
    return "";
  }
  const json& value = config.at(key);
  const json& content = value.is_object() && value.contains("content") ? value.at("content") : value;
  return content.is_string() ? content.get<std::string>() : "";
}

}  // namespace

struct ChatTemplate::Program {
  std::vector<Statement> statements;
  std::string bos_token;
  std::string eos_token;
};

ChatTemplate ChatTemplate::load(const std::filesystem::path& directory) {
  constexpr size_t kMaxDepth = 16;
  const auto path = directory / "tokenizer_config.json";
  const auto file = model::MappedFile::open(path);
  const json config = model::parse_strict_json(file->text(), path.string(), kMaxDepth);
  if (!config.is_object()) {
    model::throw_input_error("{}: expected a JSON object", path.string());
  }
  model::JsonFields fields(config, path.string(), "");
  const std::string source = fields.text_or("chat_template", "");
  if (source.empty()) {
    fields.fail("chat_template is missing: this checkpoint has no chat format");
  }
  return ChatTemplate(std::make_shared<Program>(Program{
      .statements = parse_template(source, fields.name("chat_template")),
      .bos_token = token_text(config, "bos_token"),
      .eos_token = token_text(config, "eos_token"),
  }));
}

std::string ChatTemplate::render(const nlohmann::ordered_json& messages,
                                 const ChatOptions& options,
                                 const std::string& origin) const {
  if (!messages.is_array()) {
    model::throw_input_error("{}: messages: expected an array", origin);
  }
  for (const auto& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message.at("role").is_string()) {
      model::throw_input_error("{}: messages: expected objects with a role", origin);
    }
  }
  TemplateVariables variables = {{"messages", messages},
                                 {"bos_token", program_->bos_token},
                                 {"eos_token", program_->eos_token},
                                 {"add_generation_prompt", options.add_generation_prompt}};
  if (options.thinking) {
    variables.emplace("thinking", *options.thinking);
  }
  return run_template(program_->statements, std::move(variables), origin);
}

}  // namespace text
