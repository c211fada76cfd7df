// Finds data that lies beside the source tree and is not part of it.
#pragma once

#include <gtest/gtest.h>

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

// Tests labelled oracle need data that is not part of the repository, and everything has to build and pass where that is not. Such a test
// stands down here, and is counted as skipped.
#define SKIP_UNLESS_THERE(data)                                                     \
  do {                                                                              \
    if (!(data)) {                                                                  \
      GTEST_SKIP() << "no data beside the repository (../shared, or $DSV3_SHARED)"; \
    }                                                                               \
  } while (false)
