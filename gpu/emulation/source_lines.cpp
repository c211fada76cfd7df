#include "gpu/emulation/source_lines.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

extern "C" const char __ehdr_start;  // the linker's: first byte of the image

namespace gpu::emulation {

uintptr_t image_base() {
  return reinterpret_cast<uintptr_t>(&__ehdr_start);
}

namespace {

std::string look_up(uintptr_t program_counter) {
  // The call that reported the access returned to this address: one byte less lies inside the line.
  const uintptr_t offset = program_counter - image_base() - 1;
  const std::string unknown = fmt::format("{:#x}", offset);
  std::array<char, 4096> program = {};
  if (readlink("/proc/self/exe", program.data(), program.size() - 1) <= 0) {
    return unknown;
  }
  const std::string command = fmt::format("addr2line -i -e '{}' {:#x} 2>/dev/null", program.data(), offset);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<char, 4096> line = {};
  while (pipe != nullptr && fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    std::string text = line.data();
    text = text.substr(0, text.find_first_of("\n ("));
    const bool is_layer =
        text.find("gpu/portable/") != std::string::npos || text.find("gpu/emulation/") != std::string::npos;
    if (!is_layer && text.find("??") == std::string::npos) {
      return text;
    }
  }
  return unknown;
}

}  // namespace

std::string source_line(uintptr_t program_counter) {
  static std::mutex mutex;
  static std::map<uintptr_t, std::string> known;  // starting a program costs milliseconds
  const std::lock_guard lock(mutex);
  auto found = known.find(program_counter);
  if (found == known.end()) {
    found = known.emplace(program_counter, look_up(program_counter)).first;
  }
  return found->second;
}

}  // namespace gpu::emulation
