#include "text/utf8.hpp"

namespace text {
namespace {

// The bytes that may follow a leading one; the first of them has a narrower range after some (Unicode 16, table 3-7).
struct Lead {
  size_t num_bytes;  // of the character; 0 for a byte that leads none
  unsigned char second_min;
  unsigned char second_max;
};

Lead lead(unsigned char byte) {
  if (byte < 0x80) {
    return {1, 0, 0};
  }
  if (byte >= 0xC2 && byte <= 0xDF) {
    return {2, 0x80, 0xBF};
  }
  if (byte >= 0xE0 && byte <= 0xEF) {
    const bool may_be_overlong = byte == 0xE0;
    const bool may_be_surrogate = byte == 0xED;
    return {3,
            static_cast<unsigned char>(may_be_overlong ? 0xA0 : 0x80),
            static_cast<unsigned char>(may_be_surrogate ? 0x9F : 0xBF)};
  }
  if (byte >= 0xF0 && byte <= 0xF4) {
    const bool may_be_overlong = byte == 0xF0;
    const bool may_be_too_large = byte == 0xF4;
    return {4,
            static_cast<unsigned char>(may_be_overlong ? 0x90 : 0x80),
            static_cast<unsigned char>(may_be_too_large ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

}  // namespace

Utf8Unit read_utf8(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[at + i]); };
  const Lead first = lead(byte(0));
  if (first.num_bytes == 0) {
    return {Utf8Kind::kBroken, 1, 0};
  }
  if (first.num_bytes == 1) {
    return {Utf8Kind::kCharacter, 1, byte(0)};
  }
  char32_t character = byte(0) & (0xFFU >> (first.num_bytes + 1));
  for (size_t i = 1; i < first.num_bytes; ++i) {
    if (at + i == bytes.size()) {
      return {Utf8Kind::kCut, i, 0};
    }
    const unsigned char min = i == 1 ? first.second_min : 0x80;
    const unsigned char max = i == 1 ? first.second_max : 0xBF;
    if (byte(i) < min || byte(i) > max) {
      return {Utf8Kind::kBroken, i, 0};
    }
    character = character << 6U | (byte(i) & 0x3FU);
  }
  return {Utf8Kind::kCharacter, first.num_bytes, character};
}

std::string utf8(char32_t character) {
  const auto tail = [&](unsigned shift) { return static_cast<char>(0x80U | (character >> shift & 0x3FU)); };
  if (character < 0x80) {
    return {static_cast<char>(character)};
  }
  if (character < 0x800) {
    return {static_cast<char>(0xC0U | character >> 6U), tail(0)};
  }
  if (character < 0x10000) {
    return {static_cast<char>(0xE0U | character >> 12U), tail(6), tail(0)};
  }
  return {static_cast<char>(0xF0U | character >> 18U), tail(12), tail(6), tail(0)};
}

size_t find_broken_utf8(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Unit unit = read_utf8(bytes, at);
    if (unit.kind != Utf8Kind::kCharacter) {
      return at;
    }
    at += unit.num_bytes;
  }
  return std::string_view::npos;
}

std::string replace_broken_utf8(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Unit unit = read_utf8(bytes, at);
    result += unit.kind == Utf8Kind::kCharacter ? bytes.substr(at, unit.num_bytes) : kReplacement;
    at += unit.num_bytes;
  }
  return result;
}

bool is_white_space(char32_t character) {
  return (character >= 0x09 && character <= 0x0D) || character == 0x20 || character == 0x85 || character == 0xA0 ||
         character == 0x1680 || (character >= 0x2000 && character <= 0x200A) || character == 0x2028 ||
         character == 0x2029 || character == 0x202F || character == 0x205F || character == 0x3000;
}

}  // namespace text
