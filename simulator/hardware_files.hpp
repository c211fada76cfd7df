// The files of data/hardware as the build embeds them, in alphabetical order.
#pragma once

#include <span>
#include <string_view>

namespace simulator {

struct HardwareFile {
  std::string_view name;  // stem of the file
  std::string_view json_text;
};

std::span<const HardwareFile> hardware_files();

}  // namespace simulator
