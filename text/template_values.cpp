#include "text/template_values.hpp"

#include "text/utf8.hpp"

namespace text {
namespace {

using Value = nlohmann::ordered_json;

// str.isspace(): White_Space, and four separators of ASCII.
bool is_python_space(char32_t character) {
  return is_white_space(character) || (character >= 0x1C && character <= 0x1F);
}

Value split(std::string_view text, std::string_view separator, int64_t max_splits) {
  Value parts = Value::array();
  while (max_splits != 0) {
    const size_t at = text.find(separator);
    if (at == std::string_view::npos) {
      break;
    }
    parts.push_back(std::string(text.substr(0, at)));
    text.remove_prefix(at + separator.size());
    --max_splits;
  }
  parts.push_back(std::string(text));
  return parts;
}

std::optional<bool> contains(const Value& container, const Value& member) {
  if (container.is_discarded()) {
    return false;
  }
  if (container.is_string()) {
    return member.is_string()
               ? std::optional(container.get_ref<const std::string&>().find(member.get_ref<const std::string&>()) !=
                               std::string::npos)
               : std::nullopt;
  }
  if (container.is_object()) {
    return member.is_string() && container.contains(member.get_ref<const std::string&>());
  }
  if (!container.is_array()) {
    return std::nullopt;
  }
  for (const Value& element : container) {
    if (*compare_values(element, "==", member)) {
      return true;
    }
  }
  return false;
}

}  // namespace

Value undefined() {
  return Value(Value::value_t::discarded);
}

std::string type_name(const Value& value) {
  if (value.is_discarded()) {
    return "undefined";
  }
  if (value.is_null()) {
    return "null";
  }
  return std::string("a JSON ") + value.type_name();
}

bool is_true(const Value& value) {
  if (value.is_boolean()) {
    return value.get<bool>();
  }
  if (value.is_number()) {
    return value.get<double>() != 0;
  }
  if (value.is_string()) {
    return !value.get_ref<const std::string&>().empty();
  }
  return (value.is_array() || value.is_object()) && !value.empty();
}

bool passes_test(const Value& value, std::string_view test) {
  if (test == "defined") {
    return !value.is_discarded();
  }
  if (test == "none") {
    return value.is_null();
  }
  return test == "string" ? value.is_string() : value.is_object();
}

std::optional<std::string> print(const Value& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_discarded()) {
    return "";
  }
  if (value.is_null()) {
    return "None";
  }
  if (value.is_boolean()) {
    return value.get<bool>() ? "True" : "False";
  }
  return value.is_number() ? std::optional(value.dump()) : std::nullopt;
}

std::string python_json(const Value& value) {
  if (!value.is_structured()) {
    return value.dump();
  }
  std::string text;
  for (const auto& [key, element] : value.items()) {
    text += text.empty() ? "" : ", ";
    text += (value.is_object() ? Value(key).dump() + ": " : "") + python_json(element);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

const Value* find_item(const Value& container, const Value& key) {
  if (container.is_object() && key.is_string()) {
    const auto found = container.find(key.get_ref<const std::string&>());
    return found == container.end() ? nullptr : &*found;
  }
  if (!container.is_array() || !key.is_number_integer()) {
    return nullptr;
  }
  const auto size = static_cast<int64_t>(container.size());
  const int64_t at = key.get<int64_t>() + (key.get<int64_t>() < 0 ? size : 0);
  return at < 0 || at >= size ? nullptr : &container[static_cast<size_t>(at)];
}

std::optional<bool> compare_values(const Value& left, std::string_view symbol, const Value& right) {
  if (symbol == "in") {
    return contains(right, left);
  }
  if (symbol == "==" || symbol == "!=") {
    const bool is_undefined = left.is_discarded() || right.is_discarded();
    const bool is_equal = is_undefined ? left.is_discarded() && right.is_discarded() : left == right;
    return is_equal == (symbol == "==");
  }
  const bool is_ordered = (left.is_number() && right.is_number()) || (left.is_string() && right.is_string());
  if (!is_ordered) {
    return std::nullopt;
  }
  if (symbol.starts_with('<')) {
    return left < right || (symbol == "<=" && left == right);
  }
  return right < left || (symbol == ">=" && left == right);
}

std::optional<Value> call_method(std::string_view name, const std::vector<Value>& arguments) {
  const auto is_text = [&](size_t i) { return i < arguments.size() && arguments[i].is_string(); };
  if (!is_text(0)) {
    return std::nullopt;
  }
  const auto& text = arguments[0].get_ref<const std::string&>();
  if (name == "strip") {
    return arguments.size() == 1 ? std::optional<Value>(strip(text)) : std::nullopt;
  }
  if (!is_text(1)) {
    return std::nullopt;
  }
  const auto& other = arguments[1].get_ref<const std::string&>();
  if (name == "split") {
    const bool has_max = arguments.size() == 3 && arguments[2].is_number_integer();
    if (other.empty() || (arguments.size() > 2 && !has_max)) {
      return std::nullopt;
    }
    return split(text, other, has_max ? arguments[2].get<int64_t>() : -1);
  }
  if (arguments.size() != 2) {
    return std::nullopt;
  }
  return name == "startswith" ? text.starts_with(other) : text.ends_with(other);
}

std::string strip(std::string_view text) {
  size_t begin = 0;
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Unit unit = read_utf8(text, at);
    const bool is_space = unit.kind == Utf8Kind::kCharacter && is_python_space(unit.character);
    at += unit.num_bytes;
    if (!is_space) {
      end = at;
    } else if (end == 0) {
      begin = at;
    }
  }
  return std::string(text.substr(begin, end > begin ? end - begin : 0));
}

}  // namespace text
