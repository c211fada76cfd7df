#include "tools/infer/stop_strings.hpp"

#include <algorithm>
#include <utility>

#include "model/check.hpp"
#include "text/utf8.hpp"

namespace tools {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& string : strings_) {
    if (string.empty()) {
      model::throw_input_error("--stop '': expected some text");
    }
    if (const size_t broken_at = text::find_broken_utf8(string); broken_at != std::string::npos) {
      model::throw_input_error("--stop: expected UTF-8, byte {} is not", broken_at);
    }
  }
}

std::string StopStrings::add(std::string_view text) {
  if (found_) {
    return {};
  }
  held_ += text;
  size_t end = std::string::npos;
  size_t num_held = 0;
  for (const std::string& string : strings_) {
    end = std::min(end, held_.find(string));
    for (size_t len = std::min(string.size() - 1, held_.size()); len > num_held; --len) {
      if (held_.ends_with(std::string_view(string).substr(0, len))) {
        num_held = len;
      }
    }
  }
  found_ = end != std::string::npos;
  std::string certain = held_.substr(0, found_ ? end : held_.size() - num_held);
  held_.erase(0, found_ ? std::string::npos : certain.size());
  return certain;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

}  // namespace tools
