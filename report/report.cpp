#include "report/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/check.hpp"

namespace report {
namespace {

std::vector<RecordFile> read_files(const std::vector<std::filesystem::path>& paths) {
  std::vector<RecordFile> files;
  for (const auto& path : paths) {
    files.push_back({path.string(), model::read_op_records(path)});
  }
  return files;
}

// "24.10 ms" or "812 us"
std::string time_text(double time_us) {
  return time_us >= 1e3 ? fmt::format("{:.2f} ms", time_us / 1e3) : fmt::format("{:.1f} us", time_us);
}

std::string right_line(const Report& report) {
  if (!report.verification) {
    return "right?   not verified (no --verify)";
  }
  const Verification& v = *report.verification;
  double use = 0;
  for (const VerifiedOp& op : v.ops) {
    use = std::max(use, op.bound_use.value_or(0));
  }
  return fmt::format("right?   {} against profile {}: {} ops, {} diverged; largest use of a bound {:.2f}",
                     v.verdict,
                     v.profile,
                     v.ops.size(),
                     v.counts()["diverged"],
                     use);
}

std::string phases_text(const Scenario& scenario, size_t series) {
  std::map<Phase, double> sums;
  for (const Row& row : scenario.rows) {
    sums[row.phase] += row.cells[series].time_us.value_or(0);
  }
  std::vector<std::pair<double, Phase>> sorted;
  for (const auto& [phase, us] : sums) {
    sorted.emplace_back(us, phase);
  }
  std::ranges::sort(sorted, std::greater{});
  std::string text;
  constexpr size_t kShown = 3;
  const double total = scenario.total_us(series);
  for (size_t i = 0; i < std::min(kShown, sorted.size()); ++i) {
    text +=
        fmt::format("{}{} {:.0f} %", i == 0 ? "" : ", ", phase_name(sorted[i].second), 100 * sorted[i].first / total);
  }
  return text;
}

}  // namespace

Report make_report(const Request& request) {
  Report report;
  (void)simulator::load_hardware(request.gpu);  // a wrong name is said even where no run needs it
  const std::vector<RecordFile> files = read_files(request.records);
  report.scenarios = build_scenarios(files, request.gpu, report.notices);
  for (const RecordFile& file : files) {
    report.inputs.push_back(fmt::format(
        "{}: {} op records; {}", file.name, file.content.records.size(), fmt::join(file.content.header, "; ")));
  }
  for (const auto& path : request.sim) {
    for (SimTable& table : read_sim_file(path, report.notices)) {
      report.inputs.push_back(fmt::format("{}: table {} of dsv3-sim", table.file, table.name));
      report.sim.push_back(std::move(table));
    }
  }
  if (request.verify) {
    report.verification = read_verification(*request.verify);
    report.inputs.push_back(
        fmt::format("{}: verdict of dsv3-verify, {} ops", report.verification->file, report.verification->ops.size()));
    const bool is_joined = std::ranges::any_of(
        report.scenarios, [&](const Scenario& scenario) { return is_same_model(*report.verification, scenario); });
    if (!is_joined) {
      report.notices.push_back(
          {fmt::format("{}: it is about another model than any of the records: shown alone, not joined",
                       report.verification->file)});
    }
  }
  if (!request.baseline.empty()) {
    report.regression = compare_records(files, read_files(request.baseline));
    if (report.regression->ops.empty()) {
      report.notices.push_back({"the baseline has no record of the same op, step, source, device and config"});
    }
  }
  return report;
}

std::string summary_text(const Report& report) {
  std::string text = right_line(report) + "\n";
  constexpr size_t kMostLines = 4;
  for (size_t i = 0; i < std::min(kMostLines, report.scenarios.size()); ++i) {
    const Scenario& scenario = report.scenarios[i];
    const size_t main = scenario.main_series();
    std::string ratios;
    for (const Ratio& ratio : scenario.ratios) {
      if (ratio.above == main && scenario.step_us(ratio.below) > 0) {
        ratios += fmt::format("; {} {:.2f}", ratio.title, scenario.step_us(main) / scenario.step_us(ratio.below));
      }
    }
    for (size_t s = 0; s < scenario.series.size(); ++s) {
      if (s != main && scenario.series[s].is_measured) {
        ratios += fmt::format("; {} {}", scenario.series[s].title, time_text(scenario.total_us(s)));
      }
    }
    text += fmt::format("{}: {} {}; {}{}\n",
                        scenario.title,
                        scenario.series[main].title,
                        time_text(scenario.total_us(main)),
                        phases_text(scenario, main),
                        ratios);
  }
  return text;
}

}  // namespace report
