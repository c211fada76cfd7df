// Ends a text at the first of several strings, while it is still being written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tools {

class StopStrings {
 public:
  // Empty strings are refused with InputError.
  explicit StopStrings(std::vector<std::string> strings);

  // What is certain to come before any of the strings once `text` has come. Characters that may open one are held back. Nothing
  // after a string was found.
  std::string add(std::string_view text);
  // What is held back, when the text ends without any of them.
  std::string finish();
  [[nodiscard]] bool found() const { return found_; }

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool found_ = false;
};

}  // namespace tools
