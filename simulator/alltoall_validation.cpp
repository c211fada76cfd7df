#include "simulator/alltoall_validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "simulator/csv_table.hpp"
#include "simulator/error_summary.hpp"
#include "simulator/hardware_files.hpp"

namespace simulator {
namespace {

class Columns {
 public:
  explicit Columns(const CsvTable& csv) : csv_(csv) {
    static constexpr std::array kKnown{"gpu",
                                       "num_nodes",
                                       "ep_size",
                                       "tokens_per_rank",
                                       "hidden",
                                       "topk",
                                       "num_experts",
                                       "dispatch_latency_us",
                                       "combine_latency_us",
                                       "dispatch_bw_gb_per_s",
                                       "combine_bw_gb_per_s",
                                       "notes",
                                       "source"};
    for (size_t i = 0; i < csv.columns.size(); ++i) {
      if (std::ranges::find(kKnown, csv.columns[i]) == kKnown.end()) {
        model::throw_input_error(
            "{}: unknown column {}: expected {}", csv.path, model::printable(csv.columns[i]), fmt::join(kKnown, ", "));
      }
      index_[csv.columns[i]] = i;
    }
    for (const char* needed : {"gpu", "num_nodes", "ep_size", "tokens_per_rank", "hidden", "topk", "num_experts"}) {
      if (!index_.contains(needed)) {
        model::throw_input_error("{}: column {} is missing: expected {}", csv.path, needed, fmt::join(kKnown, ", "));
      }
    }
    if (!index_.contains("dispatch_latency_us") && !index_.contains("combine_latency_us")) {
      model::throw_input_error("{}: expected dispatch_latency_us or combine_latency_us", csv.path);
    }
  }

  [[nodiscard]] std::string text(const CsvRow& row, const std::string& column) const {
    const auto found = index_.find(column);
    return found == index_.end() ? "" : row.cells[found->second];
  }

  [[nodiscard]] int64_t count(const CsvRow& row, const std::string& column) const {
    const double value = number(row, column);
    if (value != std::floor(value) || value > 1e9) {
      refuse(row, column, "a whole number of at least 1");
    }
    return static_cast<int64_t>(value);
  }

  [[nodiscard]] double number(const CsvRow& row, const std::string& column) const {
    const std::string cell = text(row, column);
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value) || value <= 0) {
      refuse(row, column, "a number above 0");
    }
    return value;
  }

 private:
  [[noreturn]] void refuse(const CsvRow& row, const std::string& column, std::string_view expected) const {
    model::throw_input_error(
        "{}:{}: {} {}: expected {}", csv_.path, row.line, column, model::printable(text(row, column)), expected);
  }

  const CsvTable& csv_;
  std::map<std::string, size_t> index_;
};

// "... sglang 0.5.0; ..." and "sglang image v0.5.12-cu130; ..." name the image that was measured.
std::string version_in(const std::string& notes) {
  for (size_t at = notes.find("0."); at != std::string::npos; at = notes.find("0.", at + 1)) {
    const size_t end = notes.find_first_not_of("0123456789.", at);
    std::string version = notes.substr(at, std::min(end, notes.size()) - at);
    if (std::ranges::count(version, '.') == 2) {
      return version;
    }
  }
  return "";
}

Table summary_table(const ErrorSummary& summary) {
  Table table{.name = "summary",
              .title = "Predicted against measured all-to-all times",
              .columns = {{"rows", "rows"},
                          {"median_abs_error_pct", "median error", "%", 1, 2},
                          {"p90_abs_error_pct", "p90 error", "%", 1, 2},
                          {"bias_pct", "bias", "%", 1, 2},
                          {"coverage_90_pct", "inside the 90 % interval", "%", 1, 1}},
              .is_record = true};
  table.add({summary.rows,
             summary.median_abs_error_pct,
             summary.p90_abs_error_pct,
             summary.bias_pct,
             summary.coverage_90_pct});
  return table;
}

}  // namespace

std::vector<AllToAllRow> read_all_to_all_rows(const std::filesystem::path& path) {
  const CsvTable csv = read_csv(path);
  const Columns columns(csv);
  std::vector<AllToAllRow> rows;
  for (const CsvRow& row : csv.rows) {
    AllToAllRow read{.line = row.line,
                     .gpu = columns.text(row, "gpu"),
                     .num_nodes = columns.count(row, "num_nodes"),
                     .num_ranks = columns.count(row, "ep_size"),
                     .tokens_per_rank = columns.count(row, "tokens_per_rank"),
                     .hidden_size = columns.count(row, "hidden"),
                     .experts_per_token = columns.count(row, "topk"),
                     .num_experts = columns.count(row, "num_experts"),
                     .version = version_in(columns.text(row, "notes"))};
    for (const bool is_dispatch : {true, false}) {
      const std::string column = is_dispatch ? "dispatch_latency_us" : "combine_latency_us";
      if (!columns.text(row, column).empty()) {
        read.is_dispatch = is_dispatch;
        read.measured_us = columns.number(row, column);
        rows.push_back(read);
      }
    }
  }
  if (rows.empty()) {
    model::throw_input_error("{}: a table without measured rows", csv.path);
  }
  return rows;
}

std::string hardware_of_gpu_name(const std::string& gpu) {
  std::string name;
  for (const char symbol : gpu) {
    name.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(symbol))));
  }
  const auto stem_of = [](std::string_view file) { return std::string(file.substr(0, file.find('-'))); };
  const auto built_in = [&](const std::string& wanted) -> std::optional<std::string> {
    // The longest stem wins: "gb200" before "b200", "h200" before "h20".
    std::optional<std::string> best;
    for (const HardwareFile& file : hardware_files()) {
      if (wanted.find(stem_of(file.name)) != std::string::npos &&
          (!best || stem_of(file.name).size() > stem_of(*best).size())) {
        best = std::string(file.name);
      }
    }
    return best;
  };
  std::optional<std::string> found = built_in(name);
  if (const size_t at = name.find("b300");
      at != std::string::npos && (!found || stem_of(*found).find("b300") == std::string::npos)) {
    found = built_in(name.replace(at, 4, "b200"));
  }
  if (!found) {
    model::throw_input_error("GPU {}: expected one of {}", model::printable(gpu), built_in_hardware_names());
  }
  return *found;
}

AllToAllPrediction predict(const AllToAllRow& row, AllToAllBackend backend, NetworkLink link) {
  check_has_phases(backend);
  Hardware hardware = load_hardware(hardware_of_gpu_name(row.gpu));
  if (row.num_nodes > row.num_ranks) {
    model::throw_input_error(
        "line {}: {} ranks on {} nodes: expected at least one a node", row.line, row.num_ranks, row.num_nodes);
  }
  // The row says how many ranks share an NVLink domain, unless the hardware's own holds them all (trays of a rack count as nodes).
  if (hardware.nvlink_domain_gpus.value < static_cast<double>(row.num_ranks)) {
    hardware.nvlink_domain_gpus.value = static_cast<double>((row.num_ranks + row.num_nodes - 1) / row.num_nodes);
  }
  const AllToAll all_to_all({.hardware = hardware,
                             .backend = backend,
                             .link = link,
                             .num_ranks = row.num_ranks,
                             .hidden_size = row.hidden_size,
                             .num_experts = row.num_experts,
                             .version = row.version});
  const TierCopies copies =
      even_copies(all_to_all, backend, row.num_ranks, row.experts_per_token, static_cast<double>(row.tokens_per_rank));
  const double predicted = row.is_dispatch ? all_to_all.dispatch_us(copies) : all_to_all.combine_us(copies);
  const double width = all_to_all.basis().interval_frac;
  return {.predicted_us = predicted,
          .low_us = predicted / (1 + width),
          .high_us = predicted * (1 + width),
          .source = all_to_all.basis().source};
}

std::vector<Table> validate_all_to_all(const std::vector<AllToAllRow>& rows,
                                       AllToAllBackend backend,
                                       NetworkLink link) {
  Table detail{.name = "each_row",
               .title = "Rows",
               .columns = {{"line", "line"},
                           {"gpu", "GPU"},
                           {"ep_size", "EP"},
                           {"num_nodes", "nodes"},
                           {"tokens_per_rank", "tokens", "per rank"},
                           {"num_experts", "experts"},
                           {"topk", "top k"},
                           {"phase", "phase"},
                           {"measured_us", "measured", "us", 1, 2},
                           {"predicted_us", "predicted", "us", 1, 2},
                           {"low_us", "from", "us", 1, 2},
                           {"high_us", "to", "us", 1, 2},
                           {"error_pct", "error", "%", 1, 1},
                           {"source", "source"}}};
  std::vector<Comparison> all;
  std::map<std::tuple<std::string, int64_t, std::string>, std::vector<Comparison>> groups;
  for (const AllToAllRow& row : rows) {
    const AllToAllPrediction prediction = predict(row, backend, link);
    const std::string phase = row.is_dispatch ? "dispatch" : "combine";
    const Comparison comparison{.predicted = prediction.predicted_us,
                                .low = prediction.low_us,
                                .high = prediction.high_us,
                                .measured = row.measured_us};
    all.push_back(comparison);
    groups[{row.gpu, row.num_ranks, phase}].push_back(comparison);
    detail.add({row.line,
                row.gpu,
                row.num_ranks,
                row.num_nodes,
                row.tokens_per_rank,
                row.num_experts,
                row.experts_per_token,
                phase,
                row.measured_us,
                prediction.predicted_us,
                prediction.low_us,
                prediction.high_us,
                comparison.error_pct(),
                prediction.source});
  }
  Table by_group{.name = "by_group",
                 .title = "By GPU, EP size and phase",
                 .columns = {{"gpu", "GPU"},
                             {"ep_size", "EP"},
                             {"phase", "phase"},
                             {"rows", "rows"},
                             {"median_abs_error_pct", "median error", "%", 1, 2},
                             {"p90_abs_error_pct", "p90 error", "%", 1, 2},
                             {"bias_pct", "bias", "%", 1, 2},
                             {"coverage_90_pct", "in interval", "%", 1, 1}}};
  for (const auto& [key, comparisons] : groups) {
    const ErrorSummary summary = summarise(comparisons);
    const auto& [gpu, ranks, phase] = key;
    by_group.add({gpu,
                  ranks,
                  phase,
                  summary.rows,
                  summary.median_abs_error_pct,
                  summary.p90_abs_error_pct,
                  summary.bias_pct,
                  summary.coverage_90_pct});
  }
  return {detail, by_group, summary_table(summarise(all))};
}

}  // namespace simulator
