// Where in a kernel's source something was called from; filled in by a default argument.
#pragma once

#include <cstring>

namespace gpu::emulation {

struct Site {
  const char* file = "";
  int line = 0;

  // std::source_location is missing in clang 14 with libstdc++ 12.
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }

  bool operator==(const Site& other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
};

// Of what is found at an access, which does not pass its place on.
inline constexpr Site kUnknownSite = {};

}  // namespace gpu::emulation
