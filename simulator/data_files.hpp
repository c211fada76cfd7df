// The files of simulator/data, other than hardware, as the build embeds them.
#pragma once

#include <string_view>

namespace simulator {

// Text of "calibration/ops.json", "calibration/engines.json", "presets.json". Checks that there is such a file.
std::string_view data_file(std::string_view name);

}  // namespace simulator
