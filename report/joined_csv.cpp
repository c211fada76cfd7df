#include <fmt/format.h>

#include <iterator>

#include "report/report.hpp"

namespace report {
namespace {

std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + '"';
}

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

}  // namespace

std::string joined_csv(const Report& report) {
  std::string text =
      "scenario,op,kind,layer,phase,part,dtype,flops,weight_bytes,activation_bytes,kv_bytes,wire_bytes,series,source,"
      "clock,"
      "time_us,time_us_p10,time_us_p90,repetitions,slowest_rank,status,max_bound_use\n";
  for (const Scenario& scenario : report.scenarios) {
    std::map<std::string, const VerifiedOp*> verified;
    if (report.verification && is_same_model(*report.verification, scenario)) {
      verified = report.verification->worst();
    }
    for (const Row& row : scenario.rows) {
      const auto found = verified.find(row.op);
      const std::string status =
          found == verified.end() ? "," : fmt::format("{},{}", found->second->status, number(found->second->bound_use));
      for (size_t s = 0; s < scenario.series.size(); ++s) {
        const TimedCell& timed = row.cells[s];
        if (!timed.time_us) {
          continue;
        }
        fmt::format_to(std::back_inserter(text),
                       "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                       cell(scenario.title),
                       cell(row.op),
                       row.kind,
                       row.layer,
                       phase_name(row.phase),
                       cell(std::string(journey_row_name(row.journey))),
                       row.dtype,
                       row.flops,
                       row.weight_bytes,
                       row.activation_bytes,
                       row.kv_bytes,
                       row.wire_bytes,
                       cell(scenario.series[s].title),
                       model::record_source_name(scenario.series[s].source),
                       scenario.series[s].clock == Series::Clock::kGpu ? "gpu" : "cpu",
                       *timed.time_us,
                       number(timed.p10_us),
                       number(timed.p90_us),
                       timed.repetitions,
                       timed.rank,
                       status);
      }
    }
  }
  return text;
}

}  // namespace report
