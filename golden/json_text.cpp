#include "golden/json_text.hpp"

#include <limits>

#include "model/check.hpp"
#include "model/strict_json.hpp"

namespace golden {

using model::throw_input_error;

Json parse_json(std::string_view text, const std::string& origin) {
  constexpr size_t kMaxDepth = 16;
  model::parse_strict_json(text, origin, kMaxDepth);  // for its refusals; it does not keep the order of names
  return Json::parse(text.begin(), text.end());
}

template <typename Integer>
std::vector<Integer> read_integers(const Json& value, int64_t limit, const std::string& origin) {
  if (!value.is_array()) {
    throw_input_error("{}: expected a list of integers, got {}", origin, value.type_name());
  }
  std::vector<Integer> integers;
  integers.reserve(value.size());
  for (const Json& element : value) {
    // Numbers above the int64 range are unsigned for the library; anything with a point or an exponent is a float.
    const bool in_range = element.is_number_integer() &&
                          !(element.is_number_unsigned() && element.get<uint64_t>() > static_cast<uint64_t>(limit)) &&
                          element.get<int64_t>() >= 0;
    if (!in_range) {
      throw_input_error("{}: expected integers from 0 to {}, element {} is not", origin, limit, integers.size());
    }
    integers.push_back(static_cast<Integer>(element.get<int64_t>()));
  }
  return integers;
}

template std::vector<int32_t> read_integers(const Json&, int64_t, const std::string&);
template std::vector<int64_t> read_integers(const Json&, int64_t, const std::string&);

std::vector<int32_t> read_token_ids(const Json& value, const std::string& origin) {
  auto ids = read_integers<int32_t>(value, std::numeric_limits<int32_t>::max(), origin);
  if (ids.empty()) {
    throw_input_error("{}: expected at least one token id, the list is empty", origin);
  }
  return ids;
}

}  // namespace golden
