#include "report/joiner.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "model/check.hpp"

namespace report {
namespace {

using model::OpRecord;
using model::RecordSource;

std::string series_title(RecordSource source, const std::string& device) {
  switch (source) {
    case RecordSource::kCuda: return "measured, " + device;
    case RecordSource::kReference: return "CPU reference, " + device;
    case RecordSource::kEmulated: return "emulated";
    case RecordSource::kSimulated: return "simulated, " + device;
    case RecordSource::kLimit: return "limit, " + device;
  }
  model::throw_check_error(__FILE__, __LINE__, "unknown record source");
}

void fill(Row& row, size_t series, const OpRecord& record) {
  row.cells.resize(std::max(row.cells.size(), series + 1));
  TimedCell& cell = row.cells[series];
  if (!cell.time_us || record.time_us > *cell.time_us) {
    cell = {record.time_us, record.time_us_p10, record.time_us_p90, record.repetitions, record.rank};
  }
}

}  // namespace

bool is_host_peak(const OpRecord& record) {
  return record.op.starts_with("host.");
}

std::vector<Group> groups_of(const std::vector<RecordFile>& files) {
  using Key = std::tuple<StepKey, RecordSource, std::string, std::string>;
  std::map<Key, size_t> places;
  std::vector<Group> groups;
  for (const RecordFile& file : files) {
    const std::string layout = file.header("layout");
    size_t last = 0;
    for (const OpRecord& record : file.content.records) {
      if (is_host_peak(record)) {
        continue;
      }
      StepKey step{record.config_hash, record.phase, record.batch, record.tokens, record.context_len};
      const auto fits = [&](const Group& group) {
        return group.source == record.source && group.step == step && group.device == record.device &&
               group.layout == layout;
      };
      if (groups.empty() || !fits(groups[last])) {
        const auto [place, is_new] = places.emplace(Key(step, record.source, record.device, layout), groups.size());
        if (is_new) {
          groups.push_back({std::move(step), record.source, record.device, layout, &file});
        }
        last = place->second;
      }
      groups[last].records.push_back(&record);
      groups[last].commits.insert(record.commit);
    }
  }
  return groups;
}

void Joiner::add(const Group& group) {
  const size_t index = scenario_.series.size();
  const bool is_emulated = group.source == RecordSource::kEmulated;
  Series series{
      .source = group.source,
      .clock = group.source == RecordSource::kReference || is_emulated ? Series::Clock::kCpu : Series::Clock::kGpu,
      .title = series_title(group.source, group.device),
      .origin = fmt::format("{}; {}commit {}",
                            group.file->name,
                            group.file->header("engine").empty() ? "" : group.file->header("engine") + "; ",
                            fmt::join(group.commits, ", ")),
      .is_measured = group.source == RecordSource::kCuda || group.source == RecordSource::kReference};
  if (group.commits.size() > 1) {
    notices_.push_back({fmt::format("{}: {} holds records of {} commits ({})",
                                    group.file->name,
                                    series.title,
                                    group.commits.size(),
                                    fmt::join(group.commits, ", "))});
  }
  std::set<std::pair<size_t, int64_t>> seen;
  int64_t num_repeated = 0;
  std::string repeated;
  for (const OpRecord* record : group.records) {
    const size_t row = row_of(*record);
    if (!seen.emplace(row, record->rank).second) {
      repeated = num_repeated++ == 0 ? record->op : repeated;
      continue;
    }
    if (!is_emulated) {
      fill(scenario_.rows[row], index, *record);
      series.rank_us[record->rank][scenario_.rows[row].phase] += record->time_us;
    }
  }
  if (num_repeated > 0 && !is_emulated) {
    notices_.push_back({fmt::format("{}: {} rows of {} repeat an op and rank (first: {}): the first of each counts",
                                    group.file->name,
                                    num_repeated,
                                    series.title,
                                    repeated)});
  }
  if (is_emulated) {
    notices_.push_back({fmt::format("{}: {} ops ran in the emulation: their counted bytes and FLOPs are shown, no time",
                                    group.file->name,
                                    group.records.size()),
                        false});
    return;
  }
  scenario_.series.push_back(std::move(series));
}

void Joiner::order() {
  std::map<int64_t, size_t> last_of_layer;
  for (size_t i = 0; i < scenario_.rows.size(); ++i) {
    if (scenario_.rows[i].phase != Phase::kWaiting) {
      last_of_layer[scenario_.rows[i].layer] = i;
    }
  }
  std::vector<std::pair<std::pair<size_t, int>, size_t>> places;
  for (size_t i = 0; i < scenario_.rows.size(); ++i) {
    const Row& row = scenario_.rows[i];
    const size_t place = row.phase == Phase::kEngine                                         ? scenario_.rows.size()
                         : row.phase == Phase::kWaiting && last_of_layer.contains(row.layer) ? last_of_layer[row.layer]
                                                                                             : i;
    places.push_back({{place, place == i ? 0 : 1}, i});
  }
  std::ranges::stable_sort(places, {}, &std::pair<std::pair<size_t, int>, size_t>::first);
  std::vector<Row> rows;
  for (const auto& [place, i] : places) {
    rows.push_back(std::move(scenario_.rows[i]));
    rows.back().cells.resize(scenario_.series.size());
  }
  scenario_.rows = std::move(rows);
}

size_t Joiner::row_of(const model::OpRecord& record) {
  const auto [place, is_new] = rows_.try_emplace(record.op, scenario_.rows.size());
  if (is_new) {
    const Phase phase = phase_of(record.op, record.kind);
    const bool crosses = scenario_.num_gpus > static_cast<int64_t>(scenario_.hardware.nvlink_domain_gpus.value);
    scenario_.rows.push_back({.op = record.op,
                              .kind = record.kind,
                              .layer = record.layer,
                              .phase = phase,
                              .lane = lane_of(phase, record.kind, crosses),
                              .dtype = record.dtype});
  }
  // Costs of a deployment's share win over whatever was there before: groups come in that order.
  Row& row = scenario_.rows[place->second];
  const bool has_costs = row.flops > 0 || row.roofline_bytes() > 0 || row.wire_bytes > 0;
  if (!has_costs) {
    row.flops = record.flops;
    row.weight_bytes = record.weight_bytes;
    row.kv_bytes = record.kv_bytes;
    row.wire_bytes = record.wire_bytes;
  }
  row.activation_bytes = std::max(row.activation_bytes, record.activation_bytes);
  return place->second;
}

}  // namespace report
