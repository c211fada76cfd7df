// JSON from files that nobody vouches for: bounded depth, bounded number of values, no name twice in one object.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace model {

// Containers may be nested `max_depth` deep (an object of numbers has depth 1). `origin` opens every message.
// Throws InputError.
nlohmann::json parse_strict_json(std::string_view text, const std::string& origin, size_t max_depth);

}  // namespace model
