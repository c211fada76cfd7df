// Finds data that lies beside the source tree and is not part of it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

// The file or folder under $DSV3_SHARED, or under ../shared seen from the source tree; empty when it is not there.
inline std::optional<std::filesystem::path> shared_data(const std::string& relative) {
  const char* root = std::getenv("DSV3_SHARED");
  const auto base =
      root != nullptr ? std::filesystem::path(root) : std::filesystem::path(DSV3_SOURCE_DIR) / ".." / "shared";
  const auto path = base / relative;
  return std::filesystem::exists(path) ? std::optional(path) : std::nullopt;
}
