// Cuts text into the pieces that BPE may merge within.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/regex.hpp"

namespace text {

class PreTokenizer {
 public:
  // `stages`: each cuts the pieces of the one before at both ends of every match, looking at one piece at a time.
  explicit PreTokenizer(std::vector<Regex> stages) : stages_(std::move(stages)) {}

  // None empty; together they are `text`.
  [[nodiscard]] std::vector<std::string_view> split(std::string_view text) const;

 private:
  std::vector<Regex> stages_;
};

}  // namespace text
