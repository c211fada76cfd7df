#include "tools/text_commands.hpp"

#include <string>

#include "model/check.hpp"

namespace tools {

struct TextCommands::Flags {
  CLI::App* tokenize = nullptr;
  std::string tokenizer;
  std::string in;
};

TextCommands::TextCommands(CLI::App& app) : flags_(std::make_unique<Flags>()) {
  flags_->tokenize = app.add_subcommand("tokenize", "text to token ids");
}

TextCommands::~TextCommands() = default;

bool TextCommands::parsed() const {
  return flags_->tokenize->parsed();
}

int TextCommands::run() const {
  model::throw_input_error("tokenize: not there yet");
}

}  // namespace tools
