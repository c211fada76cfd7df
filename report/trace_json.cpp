#include "model/chrome_trace.hpp"
#include "report/report.hpp"

namespace report {

// Ops stand one after another: records say how long an op took, not when it began.
std::string trace_json(const Report& report) {
  model::ChromeTrace trace;
  for (const Scenario& scenario : report.scenarios) {
    for (size_t s = 0; s < scenario.series.size(); ++s) {
      const Series& series = scenario.series[s];
      const auto process = static_cast<int64_t>(trace.processes.size());
      trace.processes.push_back({report.scenarios.size() == 1 ? series.title : series.title + " | " + scenario.title,
                                 {"compute", "NVLink", "network", "host"}});
      double start_us = 0;
      for (const Row& row : scenario.rows) {
        const double time_us = row.cells[s].time_us.value_or(0);
        if (time_us <= 0) {
          continue;
        }
        trace.spans.push_back({.process = process,
                               .lane = static_cast<int64_t>(row.lane),
                               .name = row.op,
                               .start_us = start_us,
                               .duration_us = time_us,
                               .details = {{"layer", static_cast<double>(row.layer)},
                                           {"flops", row.flops},
                                           {"weight_bytes", row.weight_bytes},
                                           {"kv_bytes", row.kv_bytes},
                                           {"wire_bytes", row.wire_bytes}}});
        start_us += time_us;
      }
    }
  }
  return trace.json();
}

}  // namespace report
