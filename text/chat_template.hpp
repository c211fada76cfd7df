// A conversation as the one text that a chat model continues, in the format that the checkpoint's tokenizer_config.json holds.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace text {

struct ChatOptions {
  bool add_generation_prompt = false;  // end with the opening of the assistant's answer
  bool thinking = false;               // V3.1: open it with <think>; formats without the choice ignore it
};

class ChatTemplate {
 public:
  // Throws InputError when `directory`/tokenizer_config.json is missing or broken, or its `chat_template` is missing or uses
  // what this class does not do.
  static ChatTemplate load(const std::filesystem::path& directory);

  // `messages`: an array of objects with `role`, `content` and, for the assistant, `tool_calls`. BOS included: encode the result
  // as it is. Throws InputError for messages that the format cannot hold.
  [[nodiscard]] std::string render(const nlohmann::json& messages, const ChatOptions& options) const;

 private:
  struct Program;
  explicit ChatTemplate(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

}  // namespace text
