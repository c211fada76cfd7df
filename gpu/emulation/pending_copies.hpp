// Asynchronous copies of one thread that were issued but have not happened yet.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/emulation/site.hpp"

namespace gpu::emulation {

struct PendingCopy {
  void* to = nullptr;
  const void* from = nullptr;
  int valid_bytes = 0;   // of 16 that are read from the source; the rest becomes zero
  bool is_done = false;  // already in memory, which nobody may rely on
  Site site;
};

struct PendingCopies {
  std::vector<PendingCopy> open;                 // issued, not yet committed to a group
  std::vector<std::vector<PendingCopy>> groups;  // committed, oldest first

  void clear() {
    open.clear();
    groups.clear();
  }
};

}  // namespace gpu::emulation
