#include "text/chat_template.hpp"

#include <nlohmann/json.hpp>

#include "model/check.hpp"

namespace text {

struct ChatTemplate::Program {};

ChatTemplate ChatTemplate::load(const std::filesystem::path& directory) {
  model::throw_input_error("{}: chat templates are not read yet", directory.string());
}

std::string ChatTemplate::render(const nlohmann::json&, const ChatOptions&) const {
  return {};
}

}  // namespace text
