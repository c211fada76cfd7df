// A JSON file from outside, read whole.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace simulator {

// Throws InputError: not there, larger than 256 MiB, no JSON.
nlohmann::json read_json_file(const std::filesystem::path& path);

}  // namespace simulator
