#include <array>
#include <nlohmann/json.hpp>

#include "report/report.hpp"

namespace report {
namespace {

using nlohmann::ordered_json;

constexpr std::array kLaneNames{"compute", "NVLink", "network", "host"};

ordered_json name_event(const char* what, int64_t process, int64_t thread, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

// Ops stand one after another: records say how long an op took, not when it began.
std::string trace_json(const Report& report) {
  ordered_json events = ordered_json::array();
  int64_t process = 0;
  for (const Scenario& scenario : report.scenarios) {
    for (size_t s = 0; s < scenario.series.size(); ++s) {
      const Series& series = scenario.series[s];
      ++process;
      events.push_back(name_event("process_name",
                                  process,
                                  0,
                                  report.scenarios.size() == 1 ? series.title : series.title + " | " + scenario.title));
      for (size_t lane = 0; lane < kLaneNames.size(); ++lane) {
        events.push_back(name_event("thread_name", process, static_cast<int64_t>(lane), kLaneNames.at(lane)));
      }
      double start_us = 0;
      for (const Row& row : scenario.rows) {
        const double time_us = row.cells[s].time_us.value_or(0);
        if (time_us <= 0) {
          continue;
        }
        events.push_back({{"name", row.op},
                          {"cat", phase_name(row.phase)},
                          {"ph", "X"},
                          {"ts", start_us},
                          {"dur", time_us},
                          {"pid", process},
                          {"tid", static_cast<int64_t>(row.lane)},
                          {"args",
                           {{"layer", row.layer},
                            {"flops", row.flops},
                            {"weight_bytes", row.weight_bytes},
                            {"kv_bytes", row.kv_bytes},
                            {"wire_bytes", row.wire_bytes}}}});
        start_us += time_us;
      }
    }
  }
  return ordered_json{{"displayTimeUnit", "ns"}, {"traceEvents", events}}.dump(
      -1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace report
