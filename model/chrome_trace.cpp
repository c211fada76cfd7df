#include "model/chrome_trace.hpp"

#include <nlohmann/json.hpp>

namespace model {
namespace {

using nlohmann::ordered_json;

ordered_json naming(const char* what, size_t process, size_t lane, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", lane}, {"args", {{"name", name}}}};
}

}  // namespace

std::string ChromeTrace::json() const {
  ordered_json events = ordered_json::array();
  for (size_t process = 0; process < processes.size(); ++process) {
    events.push_back(naming("process_name", process, 0, processes[process].name));
    for (size_t lane = 0; lane < processes[process].lanes.size(); ++lane) {
      events.push_back(naming("thread_name", process, lane, processes[process].lanes[lane]));
    }
  }
  for (const TraceSpan& span : spans) {
    ordered_json details = ordered_json::object();
    for (const auto& [name, value] : span.details) {
      details[name] = value;
    }
    events.push_back({{"name", span.name},
                      {"ph", "X"},
                      {"ts", span.start_us},
                      {"dur", span.duration_us},
                      {"pid", span.process},
                      {"tid", span.lane},
                      {"args", std::move(details)}});
  }
  return ordered_json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}.dump(
      -1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace model
