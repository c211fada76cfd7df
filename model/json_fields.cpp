#include "model/json_fields.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "model/check.hpp"

namespace model {
namespace {

using nlohmann::json;

constexpr size_t kMaxExcerptLen = 60;

// The value as ASCII JSON, shortened so that a message stays one readable line.
std::string excerpt(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxExcerptLen) {
    text.resize(kMaxExcerptLen);
    text += "...";
  }
  return text;
}

}  // namespace

JsonFields::JsonFields(const json& object, std::string origin, std::string prefix)
    : object_(object), origin_(std::move(origin)), prefix_(std::move(prefix)) {
  CHECK(object_.is_object());
}

bool JsonFields::has(const std::string& key) {
  read_.insert(key);
  return object_.contains(key) && !object_.at(key).is_null();
}

const json& JsonFields::required(const std::string& key) {
  read_.insert(key);
  if (!object_.contains(key)) {
    throw_input_error("{}: {}{} is missing", origin_, prefix_, key);
  }
  return object_.at(key);
}

int64_t JsonFields::checked_integer(const json& value, const std::string& key, int64_t min, int64_t max) const {
  if (!value.is_number_integer()) {
    refuse(key, "expected an integer");
  }
  const bool fits = !value.is_number_unsigned() ||
                    value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!fits || value.get<int64_t>() < min || value.get<int64_t>() > max) {
    refuse(key, fmt::format("expected {} to {}", min, max));
  }
  return value.get<int64_t>();
}

int64_t JsonFields::integer(const std::string& key, int64_t min, int64_t max) {
  return checked_integer(required(key), key, min, max);
}

int64_t JsonFields::integer_or(const std::string& key, int64_t fallback, int64_t min, int64_t max) {
  return has(key) ? integer(key, min, max) : fallback;
}

double JsonFields::number(const std::string& key) {
  const json& value = required(key);
  if (!value.is_number()) {
    refuse(key, "expected a number");
  }
  const auto number = value.get<double>();
  if (!(std::abs(number) <= std::numeric_limits<float>::max())) {
    refuse(key, "expected a number that FP32 can hold");
  }
  return number;
}

double JsonFields::positive_number(const std::string& key) {
  const double value = number(key);
  if (value < std::numeric_limits<float>::min()) {
    refuse(key, "expected a number above 0 (in FP32)");
  }
  return value;
}

double JsonFields::positive_number_or(const std::string& key, double fallback) {
  return has(key) ? positive_number(key) : fallback;
}

double JsonFields::non_negative_number_or(const std::string& key, double fallback) {
  if (!has(key)) {
    return fallback;
  }
  const double value = number(key);
  if (value < 0) {
    refuse(key, "expected 0 or more");
  }
  return value;
}

bool JsonFields::boolean_or(const std::string& key, bool fallback) {
  if (!has(key)) {
    return fallback;
  }
  if (!object_.at(key).is_boolean()) {
    refuse(key, "expected true or false");
  }
  return object_.at(key).get<bool>();
}

std::string JsonFields::text_or(const std::string& key, const std::string& fallback) {
  if (!has(key)) {
    return fallback;
  }
  if (!object_.at(key).is_string()) {
    refuse(key, "expected a string");
  }
  return object_.at(key).get<std::string>();
}

std::vector<int64_t> JsonFields::integers(const std::string& key, int64_t min, int64_t max) {
  std::vector<int64_t> values;
  if (!has(key)) {
    return values;
  }
  const json& value = object_.at(key);
  if (!value.is_array()) {
    return {checked_integer(value, key, min, max)};
  }
  for (const json& element : value) {
    values.push_back(checked_integer(element, key, min, max));
  }
  return values;
}

std::optional<JsonFields> JsonFields::object(const std::string& key) {
  if (!has(key)) {
    return std::nullopt;
  }
  if (!object_.at(key).is_object()) {
    refuse(key, "expected an object");
  }
  return JsonFields(object_.at(key), origin_, prefix_ + key + ".");
}

std::vector<JsonFields> JsonFields::objects(const std::string& key) {
  std::vector<JsonFields> result;
  if (!has(key)) {
    return result;
  }
  if (!object_.at(key).is_array()) {
    refuse(key, "expected an array of objects");
  }
  for (const json& element : object_.at(key)) {
    if (!element.is_object()) {
      refuse(key, "expected an array of objects");
    }
    result.emplace_back(element, origin_, fmt::format("{}{}[{}].", prefix_, key, result.size()));
  }
  return result;
}

void JsonFields::refuse(const std::string& key, std::string_view expected) const {
  const std::string value = object_.contains(key) ? excerpt(object_.at(key)) : "(absent)";
  throw_input_error("{}: {}{} {}: {}", origin_, prefix_, key, value, expected);
}

void JsonFields::fail(std::string_view message) const {
  throw_input_error("{}: {}", origin_, message);
}

void JsonFields::ignore(std::initializer_list<const char*> keys) {
  read_.insert(keys.begin(), keys.end());
}

std::vector<std::string> JsonFields::unread_keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items()) {
    if (!read_.contains(key)) {
      keys.push_back(prefix_ + key);
    }
  }
  return keys;
}

}  // namespace model
