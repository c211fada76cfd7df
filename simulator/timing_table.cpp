#include "simulator/timing_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "simulator/timing_formats.hpp"

namespace simulator {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 5> kUnits{
    {{"(us)", 1.0}, {"_ns", 1e-3}, {"_us", 1.0}, {"_ms", 1e3}, {"_s", 1e6}}};

struct TimeColumn {
  size_t idx = 0;
  double factor_us = 1;
};

// A format as the columns of one file have it.
struct Match {
  const TimingFormat* format = nullptr;
  std::vector<size_t> axis_columns;  // for each FormatAxis
  std::vector<TimeColumn> time_columns;
  std::vector<std::string> bad_units;  // columns that would be times, had they a unit
};

std::optional<size_t> find_column(const CsvTable& csv, std::string_view name) {
  const auto found = std::ranges::find(csv.columns, name);
  return found == csv.columns.end() ? std::nullopt : std::optional(static_cast<size_t>(found - csv.columns.begin()));
}

// Fills in the column; says in bad_units when only the unit is wrong. False when there is none.
bool match_time(const CsvTable& csv, const FormatTime& time, Match& match) {
  for (const auto& [suffix, factor] : kUnits) {
    if (const auto column = find_column(csv, std::string(time.column) + std::string(suffix))) {
      match.time_columns.push_back({*column, factor});
      return true;
    }
  }
  const std::optional<size_t> bare = find_column(csv, time.column);
  if (bare && time.bare_us > 0) {
    match.time_columns.push_back({*bare, time.bare_us});
    return true;
  }
  for (const std::string& column : csv.columns) {
    const bool other_unit =
        column.starts_with(time.column) && column.find_first_of("_(", time.column.size()) == time.column.size();
    if (column == time.column || other_unit) {
      match.bad_units.push_back(column);
      return true;
    }
  }
  return false;
}

std::optional<Match> match_format(const CsvTable& csv, const TimingFormat& format) {
  Match match{.format = &format, .axis_columns = {}, .time_columns = {}, .bad_units = {}};
  for (const FormatAxis& axis : format.axes) {
    const std::optional<size_t> column = find_column(csv, axis.column);
    if (!column) {
      return std::nullopt;
    }
    match.axis_columns.push_back(*column);
  }
  if (!format.needed_label.empty() && !find_column(csv, format.needed_label)) {
    return std::nullopt;
  }
  const bool has_times =
      std::ranges::all_of(format.times, [&](const FormatTime& time) { return match_time(csv, time, match); });
  return has_times ? std::optional(match) : std::nullopt;
}

// "; closest is gemm, which also needs k": the format most of whose axes are there, if any is.
std::string closest_format(const CsvTable& csv) {
  std::string closest;
  double best_frac = 0;
  for (const TimingFormat& format : timing_formats()) {
    std::string missing;
    int64_t num_found = 0;
    for (const FormatAxis& axis : format.axes) {
      if (find_column(csv, axis.column)) {
        ++num_found;
      } else {
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", axis.column);
      }
    }
    Match match;
    for (const FormatTime& time : format.times) {
      if (!match_time(csv, time, match)) {
        missing += fmt::format("{}{}_us", missing.empty() ? "" : ", ", time.column);
      }
    }
    const double frac =
        format.axes.empty() ? 0 : static_cast<double>(num_found) / static_cast<double>(format.axes.size());
    if (frac > best_frac && !missing.empty()) {
      best_frac = frac;
      closest = fmt::format("; closest is {}, which also needs {}", format.name, missing);
    }
  }
  return closest;
}

// The format that explains most columns.
Match best_match(const CsvTable& csv) {
  std::optional<Match> best;
  const auto explained = [](const Match& match) {
    return match.axis_columns.size() + match.time_columns.size() + match.bad_units.size();
  };
  for (const TimingFormat& format : timing_formats()) {
    const std::optional<Match> match = match_format(csv, format);
    if (match && (!best || explained(*match) > explained(*best))) {
      best = match;
    }
  }
  if (!best) {
    model::throw_input_error("{}: its columns ({}) are those of no known timing table{}",
                             csv.path,
                             model::printable(fmt::format("{}", fmt::join(csv.columns, ","))),
                             closest_format(csv));
  }
  if (!best->bad_units.empty()) {
    model::throw_input_error("{}: column {}: expected a unit that is known: _ns, _us, _ms or _s",
                             csv.path,
                             model::printable(best->bad_units.front()));
  }
  return *best;
}

double parse_number(const CsvTable& csv, const CsvRow& row, size_t column) {
  const std::string& cell = row.cells[column];
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value) || value < 0) {
    model::throw_input_error("{}:{}: column {}: \"{}\", expected a number of 0 or more",
                             csv.path,
                             row.line,
                             csv.columns[column],
                             model::printable(cell));
  }
  return value;
}

// The columns that the format leaves must be labels or known to be irrelevant.
std::vector<size_t> label_columns(const CsvTable& csv, const Match& match) {
  std::vector<size_t> labels;
  for (size_t i = 0; i < csv.columns.size(); ++i) {
    const bool is_time = std::ranges::any_of(match.time_columns, [&](const TimeColumn& time) { return time.idx == i; });
    const bool is_axis = std::ranges::find(match.axis_columns, i) != match.axis_columns.end();
    if (is_time || is_axis || is_ignored_column(csv.columns[i])) {
      continue;
    }
    if (!is_label_column(csv.columns[i])) {
      model::throw_input_error("{}: column {} is unknown in a table of format {}",
                               csv.path,
                               model::printable(csv.columns[i]),
                               match.format->name);
    }
    labels.push_back(i);
  }
  return labels;
}

}  // namespace

std::string_view timing_kind_name(TimingKind kind) {
  switch (kind) {
    case TimingKind::kGemm: return "gemm";
    case TimingKind::kGroupedGemm: return "grouped_gemm";
    case TimingKind::kMoe: return "moe";
    case TimingKind::kMlaDecode: return "mla_decode";
    case TimingKind::kBatchMatmul: return "batch_matmul";
    case TimingKind::kCollective: return "collective";
    case TimingKind::kDispatch: return "dispatch";
    case TimingKind::kLayer: return "layer";
    case TimingKind::kLink: return "link";
  }
  model::throw_check_error(__FILE__, __LINE__, "unknown timing kind");
}

TimingTable to_timing_table(const CsvTable& csv) {
  const Match match = best_match(csv);
  const std::vector<size_t> labels = label_columns(csv, match);
  TimingTable table{.path = csv.path,
                    .format = std::string(match.format->name),
                    .kind = match.format->kind,
                    .label_names = {},
                    .axis_names = {},
                    .time_names = {},
                    .rows = {}};
  for (const size_t column : labels) {
    table.label_names.push_back(csv.columns[column]);
  }
  std::vector<size_t> axis_of;  // for each FormatAxis
  for (const FormatAxis& axis : match.format->axes) {
    const auto known = std::ranges::find(table.axis_names, axis.name);
    axis_of.push_back(static_cast<size_t>(known - table.axis_names.begin()));
    if (known == table.axis_names.end()) {
      table.axis_names.emplace_back(axis.name);
    }
  }
  for (const FormatTime& time : match.format->times) {
    table.time_names.emplace_back(time.name);
  }
  for (const CsvRow& row : csv.rows) {
    TimingRow timing{
        .line = row.line, .labels = {}, .axes = std::vector<double>(table.axis_names.size(), 0.0), .times_us = {}};
    for (const size_t column : labels) {
      timing.labels.push_back(row.cells[column]);
    }
    for (size_t i = 0; i < axis_of.size(); ++i) {
      timing.axes[axis_of[i]] += parse_number(csv, row, match.axis_columns[i]) * match.format->axes[i].factor;
    }
    // An empty cell among several times was not measured.
    const auto is_empty = [&](const TimeColumn& time) { return row.cells[time.idx].empty(); };
    const bool has_none = std::ranges::all_of(match.time_columns, is_empty);
    for (const TimeColumn& time : match.time_columns) {
      const bool is_absent = is_empty(time) && !has_none;
      timing.times_us.push_back(is_absent ? std::nullopt
                                          : std::optional(parse_number(csv, row, time.idx) * time.factor_us));
    }
    table.rows.push_back(std::move(timing));
  }
  if (table.rows.empty()) {
    model::throw_input_error("{}: no rows under the header", csv.path);
  }
  return table;
}

TimingTable read_timing_table(const std::filesystem::path& path) {
  return to_timing_table(read_csv(path));
}

}  // namespace simulator
