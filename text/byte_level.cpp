#include "text/byte_level.hpp"

#include <array>

#include "text/utf8.hpp"

namespace text {
namespace {

constexpr char32_t kFirstMoved = 0x100;
constexpr size_t kNumMoved = 68;

constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

// The bytes that are moved, in order.
constexpr std::array<uint8_t, kNumMoved> kMoved = [] {
  std::array<uint8_t, kNumMoved> moved{};
  size_t count = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (!stands_for_itself(byte)) {
      moved.at(count++) = static_cast<uint8_t>(byte);
    }
  }
  return moved;
}();

}  // namespace

std::string byte_level_symbol(uint8_t byte) {
  if (stands_for_itself(byte)) {
    return utf8(byte);
  }
  char32_t symbol = kFirstMoved;
  while (kMoved[symbol - kFirstMoved] != byte) {
    ++symbol;
  }
  return utf8(symbol);
}

std::optional<std::string> byte_level_bytes(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const Utf8Unit unit = read_utf8(token, at);
    if (unit.kind != Utf8Kind::kCharacter) {
      return std::nullopt;
    }
    if (unit.character >= kFirstMoved && unit.character < kFirstMoved + kNumMoved) {
      bytes += static_cast<char>(kMoved[unit.character - kFirstMoved]);
    } else if (stands_for_itself(unit.character)) {
      bytes += static_cast<char>(unit.character);
    } else {
      return std::nullopt;
    }
    at += unit.num_bytes;
  }
  return bytes;
}

}  // namespace text
