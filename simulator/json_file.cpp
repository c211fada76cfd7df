#include "simulator/json_file.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/check.hpp"
#include "model/strict_json.hpp"

namespace simulator {

nlohmann::json read_json_file(const std::filesystem::path& path) {
  constexpr uintmax_t kMostBytes = uintmax_t{256} << 20;
  constexpr size_t kMostDepth = 16;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    model::throw_input_error("{}: expected a JSON file there", path.string());
  }
  if (std::filesystem::file_size(path, error) > kMostBytes) {
    model::throw_input_error("{}: expected at most {} bytes", path.string(), kMostBytes);
  }
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return model::parse_strict_json(text.str(), path.string(), kMostDepth);
}

}  // namespace simulator
