// A conversation as the one text that a chat model continues, in the format that the checkpoint holds.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace text {

struct ChatOptions {
  bool add_generation_prompt = false;             // end with the opening of the assistant's answer
  std::optional<bool> thinking = {};              // for formats with the choice (V3.1): open it with <think>
  const nlohmann::ordered_json* tools = nullptr;  // for formats that list them: an array of what may be called
};

class ChatTemplate {
 public:
  // Of chat_template.jinja in `directory`, or else of `chat_template` in its tokenizer_config.json, which also names the tokens. Throws
  // InputError when neither is there, or one is broken or uses what template_parser.hpp does not know.
  static ChatTemplate load(const std::filesystem::path& directory);

  // Whether ChatOptions::tools make a difference. The published V3, R1 and V3.1 formats have no place for them.
  [[nodiscard]] bool reads_tools() const;

  // `messages`: an array of objects with `role`, `content` and, for the assistant, `tool_calls`. BOS included: encode the result
  // as it is. Throws InputError for messages or tools that the format cannot hold; `origin` opens its message.
  [[nodiscard]] std::string render(const nlohmann::ordered_json& messages,
                                   const ChatOptions& options,
                                   const std::string& origin) const;

 private:
  struct Program;
  explicit ChatTemplate(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

}  // namespace text
