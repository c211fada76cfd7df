#include "text/chat_template.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
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

constexpr const char* kDefault = "default";
constexpr const char* kToolUse = "tool_use";

// A token as tokenizer_config.json names it: its text, or an object that holds it.
std::string token_text(const json& config, const char* key) {
  if (!config.contains(key)) {
    return "";
  }
  const json& value = config.at(key);
  const json& content = value.is_object() && value.contains("content") ? value.at("content") : value;
  return content.is_string() ? content.get<std::string>() : "";
}

// tokenizer_config.json holds one program, or several with names: `default`, and `tool_use` for conversations with tools.
std::map<std::string, std::vector<Statement>> programs_of(model::JsonFields& fields, const json& config) {
  std::map<std::string, std::vector<Statement>> programs;
  const std::string place = fields.name("chat_template");
  if (!config.contains("chat_template") || !config.at("chat_template").is_array()) {
    if (const std::string source = fields.text_or("chat_template", ""); !source.empty()) {
      programs.emplace(kDefault, parse_template(source, place));
    }
    return programs;
  }
  for (const json& item : config.at("chat_template")) {
    if (!item.is_object() || !item.contains("name") || !item.at("name").is_string() || !item.contains("template") ||
        !item.at("template").is_string()) {
      model::throw_input_error("{}: expected objects with a name and a template", place);
    }
    const auto name = item.at("name").get<std::string>();
    if (name == kDefault || name == kToolUse) {
      programs.emplace(name, parse_template(item.at("template").get<std::string>(), place + "." + name));
    }
  }
  return programs;
}

}  // namespace

struct ChatTemplate::Program {
  std::map<std::string, std::vector<Statement>> by_name;  // has kDefault
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
  // The file wins, as in transformers: it is what newer versions write.
  const auto own_file = directory / "chat_template.jinja";
  std::map<std::string, std::vector<Statement>> programs;
  if (std::filesystem::exists(own_file)) {
    programs.emplace(kDefault, parse_template(model::MappedFile::open(own_file)->text(), own_file.string()));
  } else {
    programs = programs_of(fields, config);
  }
  if (!programs.contains(kDefault)) {
    fields.fail("chat_template is missing, and so is chat_template.jinja: this checkpoint has no chat format");
  }
  return ChatTemplate(std::make_shared<Program>(Program{
      .by_name = std::move(programs),
      .bos_token = token_text(config, "bos_token"),
      .eos_token = token_text(config, "eos_token"),
  }));
}

bool ChatTemplate::reads_tools() const {
  return std::ranges::any_of(program_->by_name,
                             [](const auto& program) { return reads_variable(program.second, "tools"); });
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
  const auto tool_use = options.tools != nullptr ? program_->by_name.find(kToolUse) : program_->by_name.end();
  const auto& statements = tool_use != program_->by_name.end() ? tool_use->second : program_->by_name.at(kDefault);
  if (options.tools != nullptr) {
    if (!options.tools->is_array()) {
      model::throw_input_error("{}: tools: expected an array", origin);
    }
    variables.emplace("tools", *options.tools);
  }
  return run_template(statements, std::move(variables), origin);
}

}  // namespace text
