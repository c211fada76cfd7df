// Regular expressions as tokenizer.json means them: those of Oniguruma with Unicode 16, carried out by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace text {

// The pattern in PCRE2's terms. The two libraries differ in little that pre-tokenizers use: PCRE2 10.42 knows the characters of
// Unicode 14 only, and calls U+180E white space. What they would read differently (\w, \d, \b, ^, $, nested classes, ...) is
// refused. `origin` opens the message of the InputError.
std::string pcre2_pattern(std::string_view pattern, const std::string& origin);

class Regex {
 public:
  // Throws InputError for a pattern that is not one, or that pcre2_pattern() refuses.
  Regex(std::string_view pattern, const std::string& origin);

  struct Match {
    size_t begin;
    size_t end;
  };
  // What one thread needs to search.
  class Searcher {
   public:
    explicit Searcher(const Regex& regex);
    // The leftmost match that begins at `from` or later. `text` is UTF-8, `from` the start of a character. Throws InputError when
    // PCRE2 gives up.
    std::optional<Match> find(std::string_view text, size_t from);

   private:
    const Regex& regex_;
    std::shared_ptr<void> match_data_;
    std::shared_ptr<void> match_context_;
  };

 private:
  std::shared_ptr<void> code_;
};

}  // namespace text
