// Finds data that lies beside the source tree and is not part of it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/paths.hpp"

// The file or folder under $DSV3_SHARED, or under ../shared seen from the source tree; empty when it is not there.
inline std::optional<std::filesystem::path> shared_data(const std::string& relative) {
  const char* root = std::getenv("DSV3_SHARED");
  const auto base = root != nullptr ? std::filesystem::path(root) : source_dir() / ".." / "shared";
  const auto path = base / relative;
  return std::filesystem::exists(path) ? std::optional(path) : std::nullopt;
}
