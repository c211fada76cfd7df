// Name tables as JSON files (docs/formats.md), for engines that have no table in the program.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "golden/formats/name_table.hpp"
#include "model/config.hpp"

namespace golden {

// Throws InputError that begins with `origin` and names the row and key: not JSON, an unknown key, layout, size or padding,
// numbers of the foreign name that do not fit ours, a pair's layout without a second name.
NameMap parse_map(std::string_view text, const std::string& origin);
NameMap read_map(const std::filesystem::path& path);

// The maps that are part of the program.
struct BuiltInMap {
  std::string_view name;
  std::string_view text;
};
const std::vector<BuiltInMap>& built_in_maps();

// The first number of a foreign name as our name counts it; negative: the row does not mean this name.
int64_t shifted(int64_t number, const NameRow& row, const model::ModelConfig& config);

// Throws InputError when the config has no such size.
int64_t slice_bound(const std::string& text,
                    int64_t extent,
                    const model::ModelConfig& config,
                    const std::string& origin);

}  // namespace golden
