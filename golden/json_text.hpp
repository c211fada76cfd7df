// JSON text of cases and manifests, read strictly: no repeated names, integers are integers and in range.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace golden {

// Keeps the order of keys, which is the order of cases.
using Json = nlohmann::ordered_json;

// Throws InputError that begins with `origin`: not JSON, an object that repeats a name, absurdly deep or long.
Json parse_json(std::string_view text, const std::string& origin);

// A list of integers in [0, limit]. Throws InputError that begins with `origin`.
template <typename Integer>
std::vector<Integer> read_integers(const Json& value, int64_t limit, const std::string& origin);

extern template std::vector<int32_t> read_integers(const Json&, int64_t, const std::string&);
extern template std::vector<int64_t> read_integers(const Json&, int64_t, const std::string&);

// One or more token ids.
std::vector<int32_t> read_token_ids(const Json& value, const std::string& origin);

}  // namespace golden
