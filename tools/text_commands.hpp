// The subcommands of dsv3-infer that handle text alone: tokenize, detokenize, chat-template.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

namespace tools {

class TextCommands {
 public:
  explicit TextCommands(CLI::App& app);
  ~TextCommands();
  TextCommands(const TextCommands&) = delete;
  TextCommands& operator=(const TextCommands&) = delete;

  // Whether one of them is on the command line, after parsing.
  [[nodiscard]] bool parsed() const;
  // Runs it: JSON lines on stdout. Throws InputError. Returns the exit code.
  int run() const;

 private:
  struct Flags;
  std::unique_ptr<Flags> flags_;
};

}  // namespace tools
