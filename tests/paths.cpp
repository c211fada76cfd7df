#include "tests/paths.hpp"

std::filesystem::path source_dir() {
  return DSV3_SOURCE_DIR;
}
