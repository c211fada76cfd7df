#include "text/template_lexer.hpp"

#include <array>
#include <cctype>

#include "model/check.hpp"
#include "model/printable.hpp"

namespace text {
namespace {

constexpr std::string_view kSpace = " \t\n\r\f\v";

bool is_name_start(char symbol) {
  return std::isalpha(static_cast<unsigned char>(symbol)) != 0 || symbol == '_';
}

bool is_digit(char symbol) {
  return symbol >= '0' && symbol <= '9';
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& origin) : source_(source), origin_(origin) {
    if (source_.ends_with('\n')) {
      source_.remove_suffix(1);
    }
  }

  std::vector<TemplatePiece> run() {
    while (true) {
      const size_t tag = find_tag();
      put_text(tag);
      if (tag == source_.size()) {
        return std::move(pieces_);
      }
      read_tag(tag);
    }
  }

 private:
  [[noreturn]] void refuse(size_t at, std::string_view what) const {
    model::throw_input_error("{}: byte {} of the template: {}", origin_, at, what);
  }

  [[nodiscard]] bool is_at(size_t at, std::string_view text) const { return source_.substr(at).starts_with(text); }

  [[nodiscard]] size_t find_tag() const {
    size_t at = at_;
    while (at < source_.size() && !is_at(at, "{{") && !is_at(at, "{%") && !is_at(at, "{#")) {
      ++at;
    }
    return at;
  }

  void put_text(size_t tag) {
    std::string_view text = source_.substr(at_, tag - at_);
    if (strips_next_) {
      const size_t first = text.find_first_not_of(kSpace);
      text.remove_prefix(first == std::string_view::npos ? text.size() : first);
    }
    if (tag < source_.size()) {
      if (is_at(tag + 2, "-")) {
        text = text.substr(0, text.find_last_not_of(kSpace) + 1);
      } else if (!is_at(tag, "{{")) {
        // lstrip_blocks: blanks between the start of the line and the tag go.
        const size_t line = text.rfind('\n') + 1;
        const bool is_line_start = line > 0 || is_line_start_;
        if (is_line_start && text.find_first_not_of(kSpace, line) == std::string_view::npos) {
          text = text.substr(0, line);
        }
      }
    }
    if (!text.empty()) {
      pieces_.push_back({TemplatePieceKind::kText, std::string(text), {}, at_});
    }
  }

  void read_tag(size_t tag) {
    at_ = tag + 2;
    if (is_at(tag, "{#")) {
      const size_t end = source_.find("#}", at_);
      if (end == std::string_view::npos) {
        refuse(tag, "a comment without end");
      }
      at_ = end;
      close_tag("#}", is_at(end - 1, "-"));
      return;
    }
    const bool is_output = is_at(tag, "{{");
    at_ += is_at(at_, "-") ? 1 : 0;
    TemplatePiece piece{is_output ? TemplatePieceKind::kOutput : TemplatePieceKind::kStatement, "", {}, tag};
    const std::string_view end = is_output ? "}}" : "%}";
    while (true) {
      skip_space();
      const bool strips = is_at(at_, "-") && is_at(at_ + 1, end);
      if (strips || is_at(at_, end)) {
        at_ += strips ? 1 : 0;
        piece.words.push_back({TemplateWordKind::kEnd, std::string(end)});
        close_tag(end, strips);
        pieces_.push_back(std::move(piece));
        return;
      }
      if (at_ >= source_.size()) {
        refuse(tag, "a tag without end");
      }
      piece.words.push_back(read_word());
    }
  }

  // Behind a tag: "-" takes all white space, trim_blocks one newline.
  void close_tag(std::string_view end, bool strips) {
    at_ += end.size();
    strips_next_ = strips;
    is_line_start_ = false;
    if (!strips && end != "}}" && is_at(at_, "\n")) {
      ++at_;
      is_line_start_ = true;
    }
    if (strips) {
      const size_t next = source_.find_first_not_of(kSpace, at_);
      is_line_start_ = next != at_ && at_ < source_.size() && source_[std::min(next, source_.size()) - 1] == '\n';
    }
  }

  void skip_space() {
    while (at_ < source_.size() && kSpace.find(source_[at_]) != std::string_view::npos) {
      ++at_;
    }
  }

  TemplateWord read_word() {
    const char symbol = source_[at_];
    if (symbol == '\'' || symbol == '"') {
      return read_text(symbol);
    }
    const size_t begin = at_;
    if (is_name_start(symbol)) {
      while (at_ < source_.size() && (is_name_start(source_[at_]) || is_digit(source_[at_]))) {
        ++at_;
      }
      return {TemplateWordKind::kName, std::string(source_.substr(begin, at_ - begin))};
    }
    if (is_digit(symbol)) {
      int64_t value = 0;
      for (; at_ < source_.size() && is_digit(source_[at_]); ++at_) {
        value = value * 10 + (source_[at_] - '0');
        if (value > INT32_MAX) {
          refuse(begin, "a number above 2147483647");
        }
      }
      return {TemplateWordKind::kInteger, std::string(source_.substr(begin, at_ - begin)), value};
    }
    for (const std::string_view symbols :
         {"==", "!=", "<=", ">=", "<", ">", "=", "+", "-", "~", "|", ".", ",", "(", ")", "[", "]"}) {
      if (is_at(at_, symbols)) {
        at_ += symbols.size();
        return {TemplateWordKind::kSymbol, std::string(symbols)};
      }
    }
    refuse(at_, fmt::format("{} is not supported", model::printable(source_.substr(at_, 1))));
  }

  TemplateWord read_text(char quote) {
    const size_t begin = at_++;
    std::string text;
    for (; at_ < source_.size() && source_[at_] != quote; ++at_) {
      if (source_[at_] != '\\') {
        text += source_[at_];
        continue;
      }
      ++at_;
      constexpr std::string_view kEscapes = "nrt\\'\"";
      constexpr std::string_view kMeanings = "\n\r\t\\'\"";
      const size_t which = at_ < source_.size() ? kEscapes.find(source_[at_]) : std::string_view::npos;
      if (which == std::string_view::npos) {
        refuse(at_ - 1, "an escape other than \\n \\r \\t \\\\ \\' \\\" is not supported");
      }
      text += kMeanings[which];
    }
    if (at_ >= source_.size()) {
      refuse(begin, "a string without end");
    }
    ++at_;
    return {TemplateWordKind::kText, std::move(text)};
  }

  std::string_view source_;
  const std::string& origin_;
  std::vector<TemplatePiece> pieces_;
  size_t at_ = 0;
  bool strips_next_ = false;   // the tag before ended with "-"
  bool is_line_start_ = true;  // a line begins behind the tag before
};

}  // namespace

std::vector<TemplatePiece> read_template_pieces(std::string_view source, const std::string& origin) {
  return Lexer(source, origin).run();
}

}  // namespace text
