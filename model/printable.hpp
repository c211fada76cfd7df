// Makes names that came out of a file fit for a one-line message: what is not printable ASCII escaped, absurd lengths cut.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace model {

inline std::string printable(std::string_view text) {
  constexpr size_t kMaxLen = 160;
  std::string result;
  for (const char symbol : text.substr(0, kMaxLen)) {
    const bool is_printable = symbol >= ' ' && symbol <= '~';
    result += is_printable ? std::string(1, symbol) : fmt::format("\\x{:02x}", static_cast<unsigned char>(symbol));
  }
  return text.size() > kMaxLen ? result + "..." : result;
}

// The first few, and how many more.
inline std::string printable_list(const std::vector<std::string>& names) {
  constexpr size_t kMaxShown = 3;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMaxShown); ++i) {
    list += (i == 0 ? "" : ", ") + printable(names[i]);
  }
  return names.size() > kMaxShown ? fmt::format("{} and {} more", list, names.size() - kMaxShown) : list;
}

}  // namespace model
