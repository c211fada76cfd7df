// Timelines in the trace event format of Chrome, which Perfetto opens.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace model {

struct TraceSpan {
  int64_t process = 0;
  int64_t lane = 0;
  std::string name;
  double start_us = 0;
  double duration_us = 0;
  std::vector<std::pair<std::string, double>> details = {};  // shown when the span is selected
};

struct ChromeTrace {
  struct Process {
    std::string name;
    std::vector<std::string> lanes;  // by number
  };
  std::vector<Process> processes;  // by number; shown as groups of lanes
  std::vector<TraceSpan> spans;

  // Bytes that are no UTF-8 are replaced.
  [[nodiscard]] std::string json() const;
};

}  // namespace model
