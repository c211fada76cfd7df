#include "text/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "text/unicode_additions.hpp"

namespace text {
namespace {

constexpr std::string_view kWhiteSpace = "\\x09-\\x0D\\x20\\x{85}\\p{Z}";

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& origin) : pattern_(pattern), origin_(origin) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char symbol = pattern_[at_];
      if (symbol == '\\') {
        escape();
      } else if (symbol == '[') {
        open_class();
      } else if (symbol == ']' && in_class_) {
        in_class_ = false;
        copy(1);
      } else {
        refuse_what_differs();
        copy(1);
      }
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void copy(size_t num_bytes) {
    result_ += pattern_.substr(at_, num_bytes);
    at_ += num_bytes;
  }

  [[noreturn]] void refuse(std::string_view what) const {
    model::throw_input_error("{}: pattern {}: {} at byte {} is not supported",
                             origin_,
                             model::printable(pattern_),
                             model::printable(what),
                             at_);
  }

  void refuse_what_differs() const {
    if (in_class_ && next_is("&&")) {
      refuse("&&");
    }
    for (const std::string_view text : {"^", "$", "{,", "}+", "(?m"}) {
      if (!in_class_ && next_is(text)) {
        refuse(text);
      }
    }
  }

  void open_class() {
    if (in_class_) {
      refuse("[");
    }
    in_class_ = true;
    copy(next_is("[^") ? 2 : 1);
    if (next_is("]")) {
      refuse("]");
    }
  }

  // A set of characters, written so that it can stand inside a class.
  void put_set(const std::string& members, bool is_negated, std::string_view name) {
    if (in_class_ && is_negated) {
      refuse(name);
    }
    result_ += in_class_ ? members : (is_negated ? "[^" : "[") + members + "]";
    at_ += name.size();
  }

  void escape() {
    const std::string_view name = pattern_.substr(at_, 2);
    if (name == "\\s" || name == "\\S") {
      put_set(std::string(kWhiteSpace), name == "\\S", name);
      return;
    }
    if (name == "\\p" || name == "\\P") {
      for (const CategoryAddition& category : kAddedSinceUnicode14) {
        if (const std::string braces = std::string("{") + category.name + "}";
            pattern_.substr(at_ + 2).starts_with(braces)) {
          put_set("\\p" + braces + category.ranges, name == "\\P", pattern_.substr(at_, 2 + braces.size()));
          return;
        }
      }
      refuse(pattern_.substr(at_, pattern_.find('}', at_) - at_ + 1));
    }
    const bool is_control = name == "\\r" || name == "\\n" || name == "\\t";
    if (name.size() < 2 || (std::isalnum(static_cast<unsigned char>(name[1])) != 0 && !is_control)) {
      refuse(name);
    }
    copy(2);
  }

  std::string_view pattern_;
  const std::string& origin_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string result_;
};

std::string error_text(int code) {
  std::array<unsigned char, 256> message{};
  pcre2_get_error_message(code, message.data(), message.size());
  return reinterpret_cast<const char*>(message.data());
}

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string pcre2_pattern(std::string_view pattern, const std::string& origin) {
  return Translator(pattern, origin).run();
}

Regex::Regex(std::string_view pattern, const std::string& origin) {
  const std::string translated = pcre2_pattern(pattern, origin);
  int error = 0;
  size_t error_at = 0;
  pcre2_code* code =
      pcre2_compile(bytes_of(translated), translated.size(), PCRE2_UTF | PCRE2_UCP, &error, &error_at, nullptr);
  if (code == nullptr) {
    model::throw_input_error("{}: pattern {}: {}", origin, model::printable(pattern), error_text(error));
  }
  code_ = {code, [](void* held) { pcre2_code_free(static_cast<pcre2_code*>(held)); }};
}

Regex::Searcher::Searcher(const Regex& regex)
    : regex_(regex),
      match_data_(pcre2_match_data_create_from_pattern(static_cast<pcre2_code*>(regex.code_.get()), nullptr),
                  [](void* held) { pcre2_match_data_free(static_cast<pcre2_match_data*>(held)); }),
      match_context_(pcre2_match_context_create(nullptr),
                     [](void* held) { pcre2_match_context_free(static_cast<pcre2_match_context*>(held)); }) {}

std::optional<Regex::Match> Regex::Searcher::find(std::string_view text, size_t from) {
  // A run of n blanks costs n steps before the alternative for line ends gives up, and texts may be long; but a pattern that needs
  // more than a few steps for a byte, such as (a+)+b, would never end.
  constexpr uint64_t kStepsOfAny = 10'000;
  constexpr uint64_t kStepsOfAByte = 100;
  const uint64_t limit = kStepsOfAny + kStepsOfAByte * text.size();
  pcre2_set_match_limit(static_cast<pcre2_match_context*>(match_context_.get()),
                        static_cast<uint32_t>(std::min<uint64_t>(limit, std::numeric_limits<uint32_t>::max())));
  auto* match_data = static_cast<pcre2_match_data*>(match_data_.get());
  const int found = pcre2_match(static_cast<const pcre2_code*>(regex_.code_.get()),
                                bytes_of(text),
                                text.size(),
                                from,
                                PCRE2_NO_UTF_CHECK,
                                match_data,
                                static_cast<pcre2_match_context*>(match_context_.get()));
  if (found == PCRE2_ERROR_NOMATCH) {
    return std::nullopt;
  }
  if (found < 0) {
    model::throw_input_error("a pre-tokenizer pattern of the tokenizer cannot be matched: {}", error_text(found));
  }
  const size_t* bounds = pcre2_get_ovector_pointer(match_data);
  return Match{bounds[0], bounds[1]};
}

}  // namespace text
