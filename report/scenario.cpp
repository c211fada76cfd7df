#include "report/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <unordered_map>

#include "model/check.hpp"

namespace report {
namespace {

using model::OpRecord;
using model::RecordSource;

constexpr double kClosestContext = 0.1;  // share by which contexts of one step may differ

bool is_host_peak(const OpRecord& record) {
  return record.op.starts_with("host.");
}

// What has to agree for two records to be of the same step.
struct StepKey {
  std::string config_hash;
  std::string phase;
  int64_t batch = 0;
  int64_t tokens = 0;
  int64_t context_len = 0;

  auto operator<=>(const StepKey&) const = default;
};

// Records of one source, device and layout; in one step.
struct Group {
  StepKey step;
  RecordSource source = RecordSource::kLimit;
  std::string device;
  std::string layout;
  const RecordFile* file = nullptr;
  std::vector<const OpRecord*> records = {};
  std::set<std::string> commits = {};

  [[nodiscard]] bool is_deployment() const {
    return source == RecordSource::kSimulated || source == RecordSource::kLimit || source == RecordSource::kCuda;
  }
};

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

std::optional<HostPeaks> host_peaks(const std::vector<RecordFile>& files, const std::string& device) {
  HostPeaks peaks{.device = device};
  for (const RecordFile& file : files) {
    for (const OpRecord& record : file.content.records) {
      if (!is_host_peak(record) || record.device != device || record.time_us <= 0) {
        continue;
      }
      peaks.flops_per_us = std::max(peaks.flops_per_us, static_cast<double>(record.flops) / record.time_us);
      peaks.bytes_per_us = std::max(peaks.bytes_per_us, static_cast<double>(record.weight_bytes) / record.time_us);
    }
  }
  return peaks.flops_per_us > 0 && peaks.bytes_per_us > 0 ? std::optional(peaks) : std::nullopt;
}

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

// Rows of a scenario by op, filled group by group.
class Joiner {
 public:
  Joiner(Scenario& scenario, std::vector<Notice>& notices) : scenario_(scenario), notices_(notices) {}

  void add(const Group& group) {
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
    if (num_repeated > 0) {
      notices_.push_back({fmt::format("{}: {} rows of {} repeat an op and rank (first: {}): the first of each counts",
                                      group.file->name,
                                      num_repeated,
                                      series.title,
                                      repeated)});
    }
    if (is_emulated) {
      notices_.push_back(
          {fmt::format("{}: {} ops ran in the emulation: their counted bytes and FLOPs are shown, no time",
                       group.file->name,
                       group.records.size()),
           false});
      return;
    }
    scenario_.series.push_back(std::move(series));
  }

  // Puts rows that only some sources have where they belong: behind the last op of their layer, engine rows at the end.
  void order() {
    std::map<int64_t, size_t> last_of_layer;
    for (size_t i = 0; i < scenario_.rows.size(); ++i) {
      if (scenario_.rows[i].phase != Phase::kWaiting) {
        last_of_layer[scenario_.rows[i].layer] = i;
      }
    }
    std::vector<std::pair<std::pair<size_t, int>, size_t>> places;
    for (size_t i = 0; i < scenario_.rows.size(); ++i) {
      const Row& row = scenario_.rows[i];
      const size_t place = row.phase == Phase::kEngine ? scenario_.rows.size()
                           : row.phase == Phase::kWaiting && last_of_layer.contains(row.layer)
                               ? last_of_layer[row.layer]
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

 private:
  size_t row_of(const OpRecord& record) {
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

  static void fill(Row& row, size_t series, const OpRecord& record) {
    row.cells.resize(std::max(row.cells.size(), series + 1));
    TimedCell& cell = row.cells[series];
    if (!cell.time_us || record.time_us > *cell.time_us) {
      cell = {record.time_us, record.time_us_p10, record.time_us_p90, record.repetitions, record.rank};
    }
  }

  Scenario& scenario_;
  std::vector<Notice>& notices_;
  std::unordered_map<std::string, size_t> rows_;
};

void set_journey(Scenario& scenario) {
  std::set<int64_t> moe_layers;
  for (const Row& row : scenario.rows) {
    if (row.phase == Phase::kRouter || row.phase == Phase::kExperts) {
      moe_layers.insert(row.layer);
    }
  }
  for (Row& row : scenario.rows) {
    const bool is_dense = row.layer >= 0 && !moe_layers.contains(row.layer);
    row.journey = journey_row_of(row.op, row.phase, is_dense);
  }
}

// A computed series, where no record says it.
template <typename Time>
void add_computed(Scenario& scenario, Series series, Time time_us) {
  for (Row& row : scenario.rows) {
    row.cells.resize(scenario.series.size() + 1);
    if (row.phase != Phase::kWaiting && row.phase != Phase::kEngine) {
      row.cells.back().time_us = time_us(row);
      series.rank_us[0][row.phase] += time_us(row);
    }
  }
  scenario.series.push_back(std::move(series));
}

void add_rooflines(Scenario& scenario) {
  const bool has_limit = scenario.find(RecordSource::kLimit).has_value();
  const bool has_cpu = scenario.find(RecordSource::kReference).has_value();
  if (has_cpu && scenario.host) {
    const HostPeaks& host = *scenario.host;
    add_computed(scenario,
                 {.source = RecordSource::kLimit,
                  .clock = Series::Clock::kCpu,
                  .title = "CPU roofline",
                  .origin = fmt::format("counted bytes and FLOPs over measured {:.1f} GB/s and {:.1f} GFLOP/s of {}",
                                        host.bytes_per_us / 1e3,
                                        host.flops_per_us / 1e3,
                                        host.device)},
                 [&](const Row& row) {
                   return std::max(static_cast<double>(row.roofline_bytes()) / host.bytes_per_us,
                                   static_cast<double>(row.flops) / host.flops_per_us);
                 });
  }
  if (!has_limit) {
    add_computed(scenario,
                 {.source = RecordSource::kLimit,
                  .title = "roofline, " + scenario.hardware.name,
                  .origin = "counted weights, cache and FLOPs over the figures of " + scenario.hardware.title},
                 [&](const Row& row) { return roofline_us(row, scenario.hardware); });
  }
}

void add_ratios(Scenario& scenario) {
  const auto& all = scenario.series;
  for (size_t above = 0; above < all.size(); ++above) {
    for (size_t below = 0; below < all.size(); ++below) {
      const bool is_lower_kind = all[below].source == RecordSource::kLimit ||
                                 (all[below].source == RecordSource::kSimulated && all[above].is_measured);
      if (above != below && all[above].source != RecordSource::kLimit && is_lower_kind &&
          all[above].clock == all[below].clock) {
        const auto word = [](const Series& series) { return series.title.substr(0, series.title.find(',')); };
        scenario.ratios.push_back({above, below, word(all[above]) + " / " + word(all[below])});
      }
    }
  }
}

void report_gaps(const Scenario& scenario, std::vector<Notice>& notices) {
  for (size_t s = 0; s < scenario.series.size(); ++s) {
    const Series& series = scenario.series[s];
    if (!series.is_measured) {
      continue;
    }
    int64_t num_missing = 0;
    std::string missing;
    int64_t num_too_fast = 0;
    std::string too_fast;
    for (const Row& row : scenario.rows) {
      const bool is_real_op = row.phase != Phase::kWaiting && row.phase != Phase::kEngine && row.kind != "drafting";
      if (is_real_op && !row.cells[s].time_us) {
        missing = num_missing++ == 0 ? row.op : missing;
      }
      for (const Ratio& ratio : scenario.ratios) {
        if (ratio.above != s || scenario.series[ratio.below].source != RecordSource::kLimit) {
          continue;
        }
        const auto& limit = row.cells[ratio.below].time_us;
        constexpr double kSlack = 0.95;
        if (row.cells[s].time_us && limit && *row.cells[s].time_us < kSlack * *limit) {
          too_fast = num_too_fast++ == 0 ? row.op : too_fast;
        }
      }
    }
    if (num_missing > 0) {
      notices.push_back({fmt::format("{}: {} has no time for {} of {} ops (first: {})",
                                     scenario.title,
                                     series.title,
                                     num_missing,
                                     scenario.rows.size(),
                                     missing),
                         false});
    }
    if (num_too_fast > 0) {
      notices.push_back(
          {fmt::format("{}: {} beats the limit on {} ops (first: {}): a time in another unit than us, or a step whose "
                       "counts are not those of the run",
                       scenario.title,
                       series.title,
                       num_too_fast,
                       too_fast)});
    }
  }
}

simulator::Hardware hardware_of(const std::string& device, const std::string& fallback) {
  const bool is_known =
      (", " + simulator::built_in_hardware_names() + ",").find(", " + device + ",") != std::string::npos;
  return simulator::load_hardware(is_known ? device : fallback);
}

std::string model_name(const RecordFile& file, const StepKey& step) {
  const std::string name = file.header("model");
  return name.empty() ? "config " + step.config_hash : name;
}

bool same_step(const StepKey& left, const StepKey& right) {
  const auto a = static_cast<double>(left.context_len);
  const auto b = static_cast<double>(right.context_len);
  return left.config_hash == right.config_hash && left.phase == right.phase && left.batch == right.batch &&
         left.tokens == right.tokens && std::abs(a - b) <= kClosestContext * std::max(a, b);
}

Scenario start_scenario(const Group& group, const std::string& gpu, bool is_deployment) {
  const auto [hash, phase, batch, tokens, context] = group.step;
  Scenario scenario{.model = model_name(*group.file, group.step),
                    .config_hash = hash,
                    .phase = phase,
                    .batch = batch,
                    .tokens = tokens,
                    .context_len = context,
                    .layout = group.layout,
                    .hardware = hardware_of(is_deployment ? group.device : gpu, gpu)};
  const std::string gpus = group.file->header("gpus");
  scenario.num_gpus = !gpus.empty() && gpus.find_first_not_of("0123456789") == std::string::npos && gpus.size() < 7
                          ? std::stoll(gpus)
                          : 0;
  scenario.title =
      fmt::format("{}, {}, {} {}, {} cached, {}",
                  scenario.model,
                  phase,
                  tokens,
                  tokens == 1 ? "token" : "tokens",
                  context,
                  !is_deployment          ? "on a CPU"
                  : scenario.num_gpus > 1 ? fmt::format("{} x {}, {}", scenario.num_gpus, group.device, group.layout)
                                          : group.device);
  return scenario;
}

}  // namespace

std::string RecordFile::header(const std::string& key) const {
  for (const std::string& line : content.header) {
    if (line.starts_with(key + "=")) {
      return line.substr(key.size() + 1);
    }
  }
  return "";
}

double roofline_us(const Row& row, const simulator::Hardware& hardware) {
  const bool is_fp8 = row.dtype == "F8_E4M3" && hardware.fp8_dense_tflops.has_value();
  const double tflops = is_fp8 ? hardware.fp8_dense_tflops->value : hardware.bf16_dense_tflops.value;
  return std::max(static_cast<double>(row.roofline_bytes()) / (hardware.memory_gb_per_s.value * 1e3),
                  static_cast<double>(row.flops) / (tflops * 1e6));
}

double Scenario::total_us(size_t index) const {
  double sum = 0;
  for (const Row& row : rows) {
    sum += row.cells[index].time_us.value_or(0);
  }
  return sum;
}

std::optional<size_t> Scenario::find(RecordSource source) const {
  const auto found = std::ranges::find(series, source, &Series::source);
  return found == series.end() ? std::nullopt : std::optional(static_cast<size_t>(found - series.begin()));
}

size_t Scenario::main_series() const {
  for (const auto source : {RecordSource::kCuda, RecordSource::kSimulated, RecordSource::kReference}) {
    if (const auto found = find(source)) {
      return *found;
    }
  }
  return series.size() - 1;
}

std::vector<Scenario> build_scenarios(const std::vector<RecordFile>& files,
                                      const std::string& gpu,
                                      std::vector<Notice>& notices) {
  const std::vector<Group> groups = groups_of(files);
  if (groups.empty()) {
    model::throw_input_error("--records {}: no op records in it", files.empty() ? "" : files.front().name);
  }
  // Deployments: groups of one step, device and layout.
  std::vector<std::vector<const Group*>> joined;
  for (const Group& group : groups) {
    if (!group.is_deployment()) {
      continue;
    }
    const auto found = std::ranges::find_if(joined, [&](const auto& others) {
      return others.front()->step == group.step && others.front()->device == group.device &&
             others.front()->layout == group.layout;
    });
    (found == joined.end() ? joined.emplace_back() : *found).push_back(&group);
  }
  for (const Group& group : groups) {
    if (group.is_deployment()) {
      continue;
    }
    bool is_joined = false;
    for (auto& others : joined) {
      if (others.front()->is_deployment() && same_step(others.front()->step, group.step)) {
        others.push_back(&group);
        is_joined = true;
        if (others.front()->step.context_len != group.step.context_len) {
          notices.push_back({fmt::format("{}: steps with {} and {} cached tokens are shown side by side",
                                         group.file->name,
                                         group.step.context_len,
                                         others.front()->step.context_len),
                             false});
        }
      }
    }
    if (!is_joined) {
      joined.push_back({&group});
    }
  }
  std::vector<Scenario> scenarios;
  std::set<std::string> hashes;
  for (auto& members : joined) {
    const bool is_deployment = members.front()->is_deployment();
    Scenario scenario = start_scenario(*members.front(), gpu, is_deployment);
    hashes.insert(scenario.config_hash);
    // Measured first; the order of rows and the counts come from the limit, which has every op.
    const auto place = [](const Group* group) { return static_cast<int>(group->source); };
    std::ranges::stable_sort(members, std::greater{}, place);
    Joiner joiner(scenario, notices);
    for (const Group* group : members) {
      joiner.add(*group);
    }
    joiner.order();
    std::ranges::reverse(scenario.series);
    for (Row& row : scenario.rows) {
      std::ranges::reverse(row.cells);
    }
    for (const Group* group : members) {
      if (group->source == RecordSource::kReference) {
        scenario.host = host_peaks(files, group->device);
      }
    }
    set_journey(scenario);
    add_rooflines(scenario);
    add_ratios(scenario);
    report_gaps(scenario, notices);
    scenarios.push_back(std::move(scenario));
  }
  if (hashes.size() > 1) {
    std::string names;
    std::set<std::string> told;
    for (const Scenario& scenario : scenarios) {
      if (told.insert(scenario.config_hash).second) {
        names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", scenario.model, scenario.config_hash);
      }
    }
    notices.push_back(
        {fmt::format("records of {} models, never joined with one another: {}", hashes.size(), names), false});
  }
  return scenarios;
}

}  // namespace report
