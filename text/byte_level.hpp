// The alphabet in which byte-level vocabularies are written: each of the 256 byte values is one printable character.
// Source: GPT-2's encoder.py, bytes_to_unicode. Printable Latin-1 stands for itself; the other 68 bytes, in ascending order, are
// U+0100, U+0101, ... (so that a space is U+0120).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace text {

// UTF-8 of the character for `byte`.
std::string byte_level_symbol(uint8_t byte);

// The bytes that a token written in the alphabet stands for; empty when it holds another character.
std::optional<std::string> byte_level_bytes(std::string_view token);

}  // namespace text
