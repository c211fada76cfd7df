// Reads a file of JSON objects, one a line.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tools {

struct JsonLine {
  nlohmann::json value;   // an object
  std::string_view text;  // the line itself, for who needs the order of names
  std::string origin;     // "<file>:<line number>", to open messages with
};

// Calls `visit` for each line in order; empty lines are passed over. Throws InputError for a file that cannot be read and a line
// that is not an object.
void for_each_json_line(const std::filesystem::path& path, const std::function<void(const JsonLine&)>& visit);

}  // namespace tools
