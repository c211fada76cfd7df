// Numbers out of untrusted bytes: every read is checked against the end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "model/check.hpp"

namespace golden {

static_assert(std::endian::native == std::endian::little, "files are read as they lie in memory");

// Walks over bytes; `origin` begins the message when they end too early.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string origin) : bytes_(bytes), origin_(std::move(origin)) {}

  template <typename T>
  requires std::is_arithmetic_v<T> T number() {
    T value{};
    const auto raw = take(sizeof(T));
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }

  std::span<const std::byte> take(uint64_t count) {
    if (count > bytes_.size() - position_) {
      model::throw_input_error(
          "{}: ends at byte {}, expected {} more", origin_, bytes_.size(), count - (bytes_.size() - position_));
    }
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  std::string text(uint64_t count) {
    const auto raw = take(count);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }

  void seek(uint64_t position) {
    position_ = 0;
    take(position);
  }

  [[nodiscard]] uint64_t position() const { return position_; }
  [[nodiscard]] uint64_t num_left() const { return bytes_.size() - position_; }

 private:
  std::span<const std::byte> bytes_;
  std::string origin_;
  uint64_t position_ = 0;
};

// Text of a file for a message: control characters, quotes of other alphabets and long tails do not get onto the terminal.
inline std::string printable(const std::string& text) {
  constexpr size_t kLongest = 80;
  std::string result = text.substr(0, kLongest);
  for (char& c : result) {
    c = c < ' ' || c > '~' ? '?' : c;
  }
  return text.size() > kLongest ? result + "..." : result;
}

}  // namespace golden
