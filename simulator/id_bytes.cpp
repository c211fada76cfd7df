#include "simulator/id_bytes.hpp"

#include <array>
#include <charconv>
#include <cstring>
#include <optional>

#include "model/check.hpp"
#include "model/printable.hpp"

namespace simulator {
namespace {

template <typename Number>
std::vector<int64_t> numbers(std::string_view bytes) {
  std::vector<int64_t> ids(bytes.size() / sizeof(Number));
  for (size_t i = 0; i < ids.size(); ++i) {
    Number value{};
    std::memcpy(&value, bytes.data() + i * sizeof(Number), sizeof(Number));
    ids[i] = static_cast<int64_t>(value);
  }
  return ids;
}

struct IdType {
  std::string_view name;
  std::string_view npy;
  size_t bytes;
  std::vector<int64_t> (*read)(std::string_view);
};

constexpr std::array kIdTypes{IdType{"uint8", "|u1", 1, numbers<uint8_t>},
                              IdType{"int16", "<i2", 2, numbers<int16_t>},
                              IdType{"uint16", "<u2", 2, numbers<uint16_t>},
                              IdType{"int32", "<i4", 4, numbers<int32_t>},
                              IdType{"int64", "<i8", 8, numbers<int64_t>}};

// The text behind `key` in the header, a Python dictionary, up to `end`.
std::string_view behind(std::string_view header, std::string_view key, char end) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) {
    return {};
  }
  const std::string_view rest = header.substr(at + key.size());
  return rest.substr(0, rest.find(end));
}

}  // namespace

std::string decode_base64(std::string_view text, const std::string& where) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr uint32_t kBitsOfDigit = 6;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  while (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  uint32_t bits = 0;
  uint32_t num_bits = 0;
  for (const char symbol : text) {
    const size_t digit = kDigits.find(symbol);
    if (digit == std::string_view::npos) {
      model::throw_input_error("{}: expected base64, found {}", where, model::printable(std::string(1, symbol)));
    }
    bits = (bits << kBitsOfDigit | static_cast<uint32_t>(digit)) & 0xffff;
    num_bits += kBitsOfDigit;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes.push_back(static_cast<char>(bits >> num_bits & 0xff));
    }
  }
  return bytes;
}

std::vector<int64_t> read_ids(std::string_view bytes, std::string_view dtype, const std::string& where) {
  for (const IdType& type : kIdTypes) {
    if (type.name == dtype) {
      if (bytes.size() % type.bytes != 0) {
        model::throw_input_error("{}: {} bytes, expected a whole number of {}", where, bytes.size(), dtype);
      }
      return type.read(bytes);
    }
  }
  model::throw_input_error(
      "{}: ids of {}, expected uint8, int16, uint16, int32 or int64", where, model::printable(std::string(dtype)));
}

IdArray parse_npy(std::string_view bytes, const std::string& where) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  constexpr size_t kPrefix = 10;  // magic, version, length of the header in two bytes (four in version 2)
  const auto fail = [&](const char* what) { model::throw_input_error("{}: {}", where, what); };
  if (!bytes.starts_with(kMagic) || bytes.size() < kPrefix + 2) {
    fail("expected a .npy file in base64");
  }
  const bool is_long = bytes[kMagic.size()] != 1;
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<unsigned char>(bytes[at])); };
  const size_t header_len = byte(8) | byte(9) << 8 | (is_long ? byte(10) << 16 | byte(11) << 24 : 0);
  const size_t header_at = is_long ? kPrefix + 2 : kPrefix;
  if (header_len > bytes.size() - header_at) {
    fail("a .npy file that ends in its header");
  }
  const std::string_view header = bytes.substr(header_at, header_len);
  const std::string_view data = bytes.substr(header_at + header_len);
  const std::string_view descr = behind(header, "'descr': '", '\'');
  if (behind(header, "'fortran_order': ", ',') != "False") {
    fail("expected a .npy file in C order");
  }
  IdArray array;
  size_t num_ids = 1;
  std::string_view shape = behind(header, "'shape': (", ')');
  while (!shape.empty()) {
    const size_t begin = shape.find_first_of("0123456789");
    if (begin == std::string_view::npos) {
      break;
    }
    size_t length = 0;
    const auto [end, error] = std::from_chars(shape.data() + begin, shape.data() + shape.size(), length);
    if (error != std::errc() || length > data.size()) {
      fail("a .npy file whose shape is larger than its data");
    }
    array.shape.push_back(length);
    num_ids *= length;
    if (num_ids > data.size()) {
      fail("a .npy file whose shape is larger than its data");
    }
    shape.remove_prefix(static_cast<size_t>(end - shape.data()));
  }
  for (const IdType& type : kIdTypes) {
    if (type.npy == descr) {
      if (data.size() != num_ids * type.bytes) {
        fail("a .npy file whose shape and data differ in size");
      }
      array.ids = type.read(data);
      return array;
    }
  }
  fail("expected a .npy file of whole numbers");
  return array;
}

}  // namespace simulator
