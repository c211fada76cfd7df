// Takes a Jinja template apart: the text between tags, with white space handled as Hugging Face transformers sets it
// (trim_blocks, lstrip_blocks, no trailing newline), and the words inside tags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace text {

enum class TemplateWordKind { kName, kText, kInteger, kSymbol, kEnd };

struct TemplateWord {
  TemplateWordKind kind;
  std::string text;  // of kText: without quotes, escapes resolved
  int64_t integer = 0;
};

enum class TemplatePieceKind { kText, kOutput, kStatement };

struct TemplatePiece {
  TemplatePieceKind kind;
  std::string text;                 // of kText
  std::vector<TemplateWord> words;  // of {{ kOutput }} and {% kStatement %}; the last is kEnd
  size_t at;                        // its first byte in the template, for messages
};

// Throws InputError; `origin` opens its message.
std::vector<TemplatePiece> read_template_pieces(std::string_view source, const std::string& origin);

}  // namespace text
