#include "report/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>
#include <tuple>
#include <unordered_map>

#include "model/check.hpp"
#include "report/joiner.hpp"

namespace report {
namespace {

using model::RecordSource;

constexpr double kClosestContext = 0.1;  // share by which contexts of one step may differ

std::optional<HostPeaks> host_peaks(const std::vector<RecordFile>& files, const std::string& device) {
  HostPeaks peaks{.device = device};
  for (const RecordFile& file : files) {
    for (const model::OpRecord& record : file.content.records) {
      if (!is_host_peak(record) || record.device != device || record.time_us <= 0) {
        continue;
      }
      peaks.flops_per_us = std::max(peaks.flops_per_us, static_cast<double>(record.flops) / record.time_us);
      peaks.bytes_per_us = std::max(peaks.bytes_per_us, static_cast<double>(record.weight_bytes) / record.time_us);
    }
  }
  return peaks.flops_per_us > 0 && peaks.bytes_per_us > 0 ? std::optional(peaks) : std::nullopt;
}

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
    add_computed(
        scenario,
        {.source = RecordSource::kLimit,
         .clock = Series::Clock::kCpu,
         .title = "CPU roofline",
         .origin = fmt::format("counted bytes and FLOPs over measured {:.1f} GB/s of memory and {:.1f} GFLOP/s of {}; "
                               "weights that fit a cache can be faster",
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
        // A small model's weights may come from a cache, so a CPU may beat the rate of its memory.
        if (ratio.above != s || series.clock == Series::Clock::kCpu ||
            scenario.series[ratio.below].source != RecordSource::kLimit) {
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
  const std::filesystem::path path = file.header("model");
  const auto name = path.filename() == "checkpoint" ? path.parent_path().filename() : path.filename();
  if (!name.empty()) {
    return name.string();
  }
  return step.config_hash.empty() ? "no model" : "config " + step.config_hash;
}

// Of an emulated run, whose rows are one a launch and step, the middle step of each kind: its counts stand for the others.
std::vector<Group> without_other_emulated_steps(std::vector<Group> groups) {
  std::map<StepKey, std::vector<int64_t>> contexts;
  const auto kind_of = [](const Group& group) {
    StepKey kind = group.step;
    kind.context_len = 0;
    return kind;
  };
  for (const Group& group : groups) {
    if (group.source == RecordSource::kEmulated) {
      contexts[kind_of(group)].push_back(group.step.context_len);
    }
  }
  std::erase_if(groups, [&](const Group& group) {
    if (group.source != RecordSource::kEmulated) {
      return false;
    }
    const std::vector<int64_t>& all = contexts.at(kind_of(group));
    return group.step.context_len != all[all.size() / 2];
  });
  return groups;
}

bool same_step(const StepKey& left, const StepKey& right) {
  const auto a = static_cast<double>(left.context_len);
  const auto b = static_cast<double>(right.context_len);
  return left.config_hash == right.config_hash && left.phase == right.phase && left.batch == right.batch &&
         left.tokens == right.tokens && std::abs(a - b) <= kClosestContext * std::max(a, b);
}

// "tp8 pp1 dp1 ep1" -> "tp8": degrees of one go without saying.
std::string short_layout(const std::string& layout) {
  std::istringstream words(layout);
  std::string text;
  for (std::string word; words >> word;) {
    const bool is_one = word.size() == 3 && word[2] == '1';
    text += is_one ? "" : (text.empty() ? "" : " ") + word;
  }
  return text;
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
  scenario.title = fmt::format(
      "{}, {}, {} {}, {} cached, {}",
      scenario.model,
      phase,
      tokens,
      tokens == 1 ? "token" : "tokens",
      context,
      !is_deployment          ? "on a CPU"
      : scenario.num_gpus > 1 ? fmt::format("{} x {}, {}", scenario.num_gpus, group.device, short_layout(group.layout))
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

double Scenario::step_us(size_t index) const {
  if (series[index].source != RecordSource::kLimit) {
    return total_us(index);
  }
  double exchange_us = 0;
  for (const Row& row : rows) {
    const bool is_exchange = row.lane == Lane::kNvlink || row.lane == Lane::kNetwork;
    exchange_us += is_exchange ? row.cells[index].time_us.value_or(0) : 0;
  }
  return std::max(exchange_us, total_us(index) - exchange_us);
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
  const std::vector<Group> groups = without_other_emulated_steps(groups_of(files));
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
      if (same_step(others.front()->step, group.step)) {
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
    // A file that names its model comes first, so that the scenario has a name.
    if (!is_deployment) {
      std::stable_partition(
          members.begin(), members.end(), [](const Group* group) { return !group->file->header("model").empty(); });
    }
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
