// A report: everything its inputs say, joined, and the forms it is written in.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "report/regression.hpp"
#include "report/scenario.hpp"
#include "report/sim_file.hpp"
#include "report/verification.hpp"

namespace report {

struct Request {
  std::vector<std::filesystem::path> records;
  std::vector<std::filesystem::path> sim = {};
  std::optional<std::filesystem::path> verify = {};
  std::vector<std::filesystem::path> baseline = {};
  std::string gpu = "h200";  // whose roofline is drawn for runs that name no GPU
};

struct Report {
  std::vector<Scenario> scenarios;
  std::vector<SimTable> sim = {};
  std::optional<Verification> verification = {};
  std::optional<Regression> regression = {};
  std::vector<Notice> notices = {};
  std::vector<std::string> inputs = {};  // one line each
};

// Throws InputError: a file that cannot be read or is not what it should be.
Report make_report(const Request& request);

// One self-contained HTML page.
std::string page_html(const Report& report, const std::string& commit);
// The joined rows of all scenarios, a line an op and series.
std::string joined_csv(const Report& report);
// Chrome trace events (also read by Perfetto): measured, simulated and limit of each scenario as processes, lanes as threads.
std::string trace_json(const Report& report);
// What a terminal shows: at most five lines.
std::string summary_text(const Report& report);

}  // namespace report
