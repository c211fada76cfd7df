// UTF-8 taken apart byte by byte, so that broken text has one defined meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace text {

// U+FFFD, which stands for what is broken.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Utf8Kind {
  kCharacter,  // a whole one
  kBroken,  // the longest start of a character that something else follows (Unicode 16, section 3.9, "maximal subpart")
  kCut,     // the same, at the end of the text: more bytes could complete it
};

struct Utf8Unit {
  Utf8Kind kind;
  size_t num_bytes;    // at least 1
  char32_t character;  // of kCharacter
};

// What stands at `at`, which has to be inside `bytes`. Surrogates and overlong forms are broken.
Utf8Unit read_utf8(std::string_view bytes, size_t at);

std::string utf8(char32_t character);

// The position of the first byte that is not UTF-8; npos when all is.
size_t find_broken_utf8(std::string_view bytes);

// Each broken unit, and a cut one, becomes U+FFFD.
std::string replace_broken_utf8(std::string_view bytes);

// Unicode's White_Space.
bool is_white_space(char32_t character);

}  // namespace text
