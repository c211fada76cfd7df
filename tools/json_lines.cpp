#include "tools/json_lines.hpp"

#include <algorithm>
#include <string_view>

#include "model/check.hpp"
#include "model/mapped_file.hpp"
#include "model/strict_json.hpp"

namespace tools {

void for_each_json_line(const std::filesystem::path& path, const std::function<void(const JsonLine&)>& visit) {
  constexpr size_t kMaxDepth = 32;
  const auto file = model::MappedFile::open(path);
  const std::string_view text = file->text();
  size_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    JsonLine parsed{.value = {}, .text = line, .origin = fmt::format("{}:{}", path.string(), number)};
    parsed.value = model::parse_strict_json(line, parsed.origin, kMaxDepth);
    if (!parsed.value.is_object()) {
      model::throw_input_error("{}: expected a JSON object", parsed.origin);
    }
    visit(parsed);
  }
}

}  // namespace tools
