// Numbers for the page: short, and null where there is none.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace report {

// Six digits are more than any time here has.
inline nlohmann::ordered_json rounded(const std::optional<double>& value) {
  if (!value) {
    return nullptr;
  }
  return std::stod(fmt::format("{:.6g}", *value));
}

template <typename Number>
nlohmann::ordered_json rounded_list(const std::vector<Number>& values) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Number& value : values) {
    list.push_back(rounded(value));
  }
  return list;
}

}  // namespace report
