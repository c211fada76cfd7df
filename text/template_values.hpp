// What Jinja's operators, tests and string methods do to values, as in Python.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace text {

// No value: the discarded one.
nlohmann::ordered_json undefined();

// In words, for messages.
std::string type_name(const nlohmann::ordered_json& value);

bool is_true(const nlohmann::ordered_json& value);
// `test`: defined, none, string or mapping.
bool passes_test(const nlohmann::ordered_json& value, std::string_view test);

// What {{ value }} writes; empty for lists and mappings.
std::optional<std::string> print(const nlohmann::ordered_json& value);
// As json.dumps(value, ensure_ascii=False) writes it.
std::string python_json(const nlohmann::ordered_json& value);

// container[key]; null when it is not there. Negative keys count from the end of a list.
const nlohmann::ordered_json* find_item(const nlohmann::ordered_json& container, const nlohmann::ordered_json& key);

// `symbol`: == != < <= > >= in. Empty when Python would raise.
std::optional<bool> compare_values(const nlohmann::ordered_json& left,
                                   std::string_view symbol,
                                   const nlohmann::ordered_json& right);

// `arguments[0]` is the string that the method belongs to. Empty when Python would raise.
std::optional<nlohmann::ordered_json> call_method(std::string_view name,
                                                  const std::vector<nlohmann::ordered_json>& arguments);

// Without the white space at both ends.
std::string strip(std::string_view text);

}  // namespace text
