// The column sets of published timing tables, as data.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "simulator/timing_table.hpp"

namespace simulator {

// Columns of a file that share a name are added up ("isl" and "step" make the length of the cache).
struct FormatAxis {
  std::string_view column;
  std::string_view name;
  double factor = 1;
};

struct FormatTime {
  std::string_view column;  // without its unit
  std::string_view name;
  double bare_us = 0;  // microseconds of a value in a column without a unit; 0: it needs one
};

struct TimingFormat {
  std::string_view name;
  TimingKind kind;
  std::vector<FormatAxis> axes;
  std::vector<FormatTime> times;
  std::string_view needed_label = {};  // for a format without axes
};

std::span<const TimingFormat> timing_formats();

// Text that rows must agree on: GPU, kernel, dtypes, versions.
bool is_label_column(std::string_view column);
// Derived figures and remarks that nobody needs for the time.
bool is_ignored_column(std::string_view column);

}  // namespace simulator
