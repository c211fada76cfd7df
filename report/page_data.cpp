#include "report/page_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "report/findings.hpp"
#include "report/json_numbers.hpp"

namespace report {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostRows = 16000;     // of all scenarios together: a page of 3 MB
constexpr size_t kMostVerified = 8000;  // likewise
constexpr size_t kMostChanges = 2000;

// Texts by number, in the order of first use.
class Dictionary {
 public:
  size_t add(const std::string& text) {
    const auto [place, is_new] = places_.try_emplace(text, texts_.size());
    if (is_new) {
      texts_.push_back(text);
    }
    return place->second;
  }
  [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::map<std::string, size_t> places_;
  std::vector<std::string> texts_;
};

// "layer.3.attn.q_a" -> "layer.#.attn.q_a", so that layers share a text.
std::string id_pattern(const Row& row) {
  for (const char* prefix : {"layer.", "cache."}) {
    const std::string start = fmt::format("{}{}.", prefix, row.layer);
    if (row.op.starts_with(start)) {
      return fmt::format("{}#.{}", prefix, row.op.substr(start.size()));
    }
  }
  return row.op;
}

ordered_json series_json(const Scenario& scenario) {
  ordered_json list = ordered_json::array();
  for (size_t s = 0; s < scenario.series.size(); ++s) {
    const Series& series = scenario.series[s];
    std::map<Phase, double> sums;
    for (const Row& row : scenario.rows) {
      sums[row.phase] += row.cells[s].time_us.value_or(0);
    }
    std::vector<double> phases;
    for (const Phase phase : kPhases) {
      phases.push_back(sums[phase]);
    }
    ordered_json ranks = ordered_json::array();
    for (const auto& [rank, by_phase] : series.rank_us) {
      std::vector<double> times;
      for (const Phase phase : kPhases) {
        const auto found = by_phase.find(phase);
        times.push_back(found == by_phase.end() ? 0 : found->second);
      }
      ranks.push_back({{"rank", rank}, {"us", rounded_list(times)}});
    }
    list.push_back({{"title", series.title},
                    {"source", model::record_source_name(series.source)},
                    {"clock", series.clock == Series::Clock::kGpu ? "gpu" : "cpu"},
                    {"measured", series.is_measured},
                    {"origin", series.origin},
                    {"total", rounded(scenario.total_us(s))},
                    {"step", rounded(scenario.step_us(s))},
                    {"phases", rounded_list(phases)},
                    {"ranks", ranks}});
  }
  return list;
}

// The longest rows when there are too many.
std::vector<const Row*> shown_rows(const Scenario& scenario, size_t most) {
  std::vector<const Row*> rows;
  for (const Row& row : scenario.rows) {
    rows.push_back(&row);
  }
  if (rows.size() > most) {
    const auto longest = [](const Row* row) {
      double us = 0;
      for (const TimedCell& cell : row->cells) {
        us = std::max(us, cell.time_us.value_or(0));
      }
      return us;
    };
    std::ranges::nth_element(rows, rows.begin() + static_cast<std::ptrdiff_t>(most), std::greater{}, longest);
    rows.resize(most);
    std::ranges::sort(rows);  // in the order of the step: they point into one vector
  }
  return rows;
}

ordered_json rows_json(const Scenario& scenario,
                       const std::map<std::string, const VerifiedOp*>& verified,
                       const std::vector<const Row*>& rows) {
  Dictionary ids;
  Dictionary kinds;
  Dictionary dtypes;
  ordered_json out{{"id", ordered_json::array()},
                   {"layer", ordered_json::array()},
                   {"phase", ordered_json::array()},
                   {"lane", ordered_json::array()},
                   {"kind", ordered_json::array()},
                   {"dtype", ordered_json::array()},
                   {"flops", ordered_json::array()},
                   {"weight", ordered_json::array()},
                   {"act", ordered_json::array()},
                   {"kv", ordered_json::array()},
                   {"wire", ordered_json::array()},
                   {"status", ordered_json::array()},
                   {"use", ordered_json::array()}};
  for (const Row* row : rows) {
    const auto found = verified.find(row->op);
    const VerifiedOp* check = found == verified.end() ? nullptr : found->second;
    out["id"].push_back(ids.add(id_pattern(*row)));
    out["layer"].push_back(row->layer);
    out["phase"].push_back(static_cast<int>(row->phase));
    out["lane"].push_back(static_cast<int>(row->lane));
    out["kind"].push_back(kinds.add(row->kind));
    out["dtype"].push_back(dtypes.add(row->dtype));
    out["flops"].push_back(row->flops);
    out["weight"].push_back(row->weight_bytes);
    out["act"].push_back(row->activation_bytes);
    out["kv"].push_back(row->kv_bytes);
    out["wire"].push_back(row->wire_bytes);
    out["status"].push_back(check == nullptr ? "" : check->status);
    out["use"].push_back(check == nullptr ? ordered_json() : rounded(check->bound_use));
  }
  ordered_json times = ordered_json::array();
  ordered_json noise = ordered_json::array();
  for (size_t s = 0; s < scenario.series.size(); ++s) {
    ordered_json column = ordered_json::array();
    ordered_json spread = ordered_json::array();
    bool has_noise = false;
    for (const Row* row : rows) {
      const TimedCell& cell = row->cells[s];
      column.push_back(rounded(cell.time_us));
      has_noise = has_noise || cell.p10_us.has_value();
      spread.push_back(cell.p10_us && cell.p90_us
                           ? ordered_json::array({rounded(cell.p10_us), rounded(cell.p90_us), cell.repetitions})
                           : ordered_json());
    }
    times.push_back(std::move(column));
    noise.push_back(has_noise ? std::move(spread) : ordered_json());
  }
  out["us"] = std::move(times);
  out["noise"] = std::move(noise);
  out["ids"] = ids.texts();
  out["kinds"] = kinds.texts();
  out["dtypes"] = dtypes.texts();
  return out;
}

ordered_json journey_json(const Scenario& scenario) {
  ordered_json list = ordered_json::array();
  for (const JourneyRow journey : kJourneyRows) {
    std::vector<std::optional<double>> us(scenario.series.size());
    std::set<int64_t> layers;
    int64_t num_rows = 0;
    double bytes = 0;
    double flops = 0;
    for (const Row& row : scenario.rows) {
      if (row.journey != journey) {
        continue;
      }
      ++num_rows;
      layers.insert(row.layer);
      bytes += static_cast<double>(row.roofline_bytes());
      flops += static_cast<double>(row.flops);
      for (size_t s = 0; s < us.size(); ++s) {
        add_to(us[s], row.cells[s].time_us);
      }
    }
    if (num_rows > 0) {
      list.push_back({{"row", journey_row_name(journey)},
                      {"rows", num_rows},
                      {"first", *layers.begin()},
                      {"last", *layers.rbegin()},
                      {"layers", layers.size()},
                      {"bytes", bytes},
                      {"flops", flops},
                      {"us", rounded_list(us)}});
    }
  }
  return list;
}

ordered_json hardware_json(const simulator::Hardware& hardware) {
  const auto figure = [](const simulator::Figure& f) { return ordered_json{{"value", f.value}, {"source", f.source}}; };
  return {{"name", hardware.name},
          {"title", hardware.title},
          {"bf16_tflops", figure(hardware.bf16_dense_tflops)},
          {"fp8_tflops", hardware.fp8_dense_tflops ? figure(*hardware.fp8_dense_tflops) : ordered_json()},
          {"memory_gb_per_s", figure(hardware.memory_gb_per_s)},
          {"nvlink_gb_per_s", figure(hardware.nvlink_gb_per_s)},
          {"nic_gb_per_s", figure(hardware.nic_gb_per_s)}};
}

ordered_json scenario_json(const Scenario& scenario, const Report& report, size_t most_rows, ordered_json& notices) {
  std::map<std::string, const VerifiedOp*> verified;
  if (report.verification && is_same_model(*report.verification, scenario)) {
    verified = report.verification->worst();
  }
  const std::vector<OpSum> sums = sums_by_op(scenario);
  ordered_json by_op = ordered_json::array();
  for (const OpSum& sum : sums) {
    by_op.push_back({{"op", sum.op},
                     {"phase", static_cast<int>(sum.phase)},
                     {"rows", sum.num_rows},
                     {"flops", sum.flops},
                     {"bytes", sum.bytes},
                     {"us", rounded_list(sum.us)}});
  }
  ordered_json ratios = ordered_json::array();
  for (const Ratio& ratio : scenario.ratios) {
    ratios.push_back({{"above", ratio.above}, {"below", ratio.below}, {"title", ratio.title}});
  }
  const std::vector<const Row*> rows = shown_rows(scenario, most_rows);
  if (rows.size() < scenario.rows.size()) {
    notices.push_back(
        {{"text",
          fmt::format("{}: the table shows the {} longest of {} rows; sums are over all (all rows: --csv)",
                      scenario.title,
                      rows.size(),
                      scenario.rows.size())},
         {"warning", false}});
  }
  return {{"title", scenario.title},
          {"model", scenario.model},
          {"hash", scenario.config_hash},
          {"phase", scenario.phase},
          {"batch", scenario.batch},
          {"tokens", scenario.tokens},
          {"context", scenario.context_len},
          {"layout", scenario.layout},
          {"gpus", scenario.num_gpus},
          {"hardware", hardware_json(scenario.hardware)},
          {"host",
           scenario.host ? ordered_json{{"device", scenario.host->device},
                                        {"flops_per_us", scenario.host->flops_per_us},
                                        {"bytes_per_us", scenario.host->bytes_per_us}}
                         : ordered_json()},
          {"main", scenario.main_series()},
          {"verified", !verified.empty()},
          {"series", series_json(scenario)},
          {"ratios", ratios},
          {"journey", journey_json(scenario)},
          {"by_op", by_op},
          {"findings", findings_json(scenario, sums)},
          {"rows", rows_json(scenario, verified, rows)}};
}

ordered_json verification_json(const Verification& verification, ordered_json& notices) {
  ordered_json ops = ordered_json::array();
  std::vector<const VerifiedOp*> sorted;
  for (const VerifiedOp& op : verification.ops) {
    sorted.push_back(&op);
  }
  if (sorted.size() > kMostVerified) {
    std::ranges::stable_sort(sorted, std::greater{}, [](const VerifiedOp* op) {
      return std::pair(op->severity(), op->bound_use.value_or(0));
    });
    sorted.resize(kMostVerified);
    notices.push_back(
        {{"text",
          fmt::format("the verification table shows the {} worst of {} ops", kMostVerified, verification.ops.size())},
         {"warning", false}});
  }
  for (const VerifiedOp* op : sorted) {
    ops.push_back(
        {op->case_name, op->op, op->status, rounded(op->bound_use), rounded(op->ulp), rounded(op->cosine), op->reason});
  }
  // In the order in which the ops first come, which is that of the model.
  ordered_json worst = ordered_json::array();
  std::map<std::string, const VerifiedOp*> left = verification.worst();
  for (const VerifiedOp& op : verification.ops) {
    const std::string id = grouped_id(op.op);
    if (const auto found = left.find(id); found != left.end()) {
      worst.push_back({id, id_in_layer(id), found->second->status, rounded(found->second->bound_use)});
      left.erase(found);
    }
  }
  return {{"file", verification.file},
          {"verdict", verification.verdict},
          {"profile", verification.profile},
          {"first", verification.first_divergence},
          {"counts", verification.counts()},
          {"notes", verification.notes},
          {"num_ops", verification.ops.size()},
          {"ops", ops},
          {"worst", worst}};
}

// Six digits a number, whatever is around it.
ordered_json rounded_table(const nlohmann::json& value) {
  if (value.is_number_float()) {
    return rounded(value.get<double>());
  }
  if (value.is_array()) {
    ordered_json list = ordered_json::array();
    for (const nlohmann::json& item : value) {
      list.push_back(rounded_table(item));
    }
    return list;
  }
  if (value.is_object()) {
    ordered_json object = ordered_json::object();
    for (const auto& [key, item] : value.items()) {
      object[key] = rounded_table(item);
    }
    return object;
  }
  return value;
}

ordered_json regression_json(const Regression& regression) {
  std::vector<const ChangedOp*> sorted;
  for (const ChangedOp& op : regression.ops) {
    sorted.push_back(&op);
  }
  std::ranges::stable_sort(sorted, std::greater{}, [](const ChangedOp* op) {
    return std::pair(op->change != Change::kSame, std::abs(op->new_us - op->old_us));
  });
  ordered_json ops = ordered_json::array();
  for (size_t i = 0; i < std::min(kMostChanges, sorted.size()); ++i) {
    const ChangedOp& op = *sorted[i];
    ops.push_back({op.op,
                   op.source,
                   op.device,
                   op.phase,
                   op.rank,
                   rounded(op.old_us),
                   rounded(op.new_us),
                   rounded(op.noise_us),
                   change_name(op.change)});
  }
  return {{"compared", regression.ops.size()},
          {"slower", regression.count(Change::kSlower)},
          {"faster", regression.count(Change::kFaster)},
          {"same", regression.count(Change::kSame)},
          {"unclear", regression.count(Change::kUnclear)},
          {"only_old", regression.num_only_old},
          {"only_new", regression.num_only_new},
          {"sigmas", rounded(regression.sigmas)},
          {"ops", ops}};
}

}  // namespace

ordered_json page_data(const Report& report) {
  ordered_json notices = ordered_json::array();
  for (const Notice& notice : report.notices) {
    notices.push_back({{"text", notice.text}, {"warning", notice.is_warning}});
  }
  ordered_json phases = ordered_json::array();
  for (const Phase phase : kPhases) {
    phases.push_back(phase_name(phase));
  }
  ordered_json scenarios = ordered_json::array();
  for (const Scenario& scenario : report.scenarios) {
    scenarios.push_back(scenario_json(scenario, report, kMostRows / report.scenarios.size(), notices));
  }
  ordered_json sim = ordered_json::array();
  for (const SimTable& table : report.sim) {
    sim.push_back({{"file", table.file}, {"name", table.name}, {"value", rounded_table(table.value)}});
  }
  ordered_json data{
      {"phases", phases},
      {"scenarios", scenarios},
      {"sim", sim},
      {"verification", report.verification ? verification_json(*report.verification, notices) : ordered_json()},
      {"regression", report.regression ? regression_json(*report.regression) : ordered_json()},
      {"inputs", report.inputs}};
  data["notices"] = notices;
  return data;
}

}  // namespace report
