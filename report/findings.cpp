#include "report/findings.hpp"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>

#include "report/json_numbers.hpp"

namespace report {
namespace {

using nlohmann::ordered_json;

// The largest of a value over ops, as rows of (op, phase, time, other, value).
template <typename Value>
ordered_json largest(const std::vector<OpSum>& sums, size_t most, Value value) {
  std::vector<std::pair<double, const OpSum*>> sorted;
  for (const OpSum& sum : sums) {
    if (value(sum) > 0) {
      sorted.emplace_back(value(sum), &sum);
    }
  }
  std::ranges::sort(sorted, std::greater{}, &std::pair<double, const OpSum*>::first);
  sorted.resize(std::min(most, sorted.size()));
  ordered_json list = ordered_json::array();
  for (const auto& [number, sum] : sorted) {
    list.push_back({{"op", sum->op},
                    {"phase", phase_name(sum->phase)},
                    {"rows", sum->num_rows},
                    {"us", rounded_list(sum->us)},
                    {"value", rounded(number)}});
  }
  return list;
}

// Layers whose ops take longer than the same ops of other layers do, by what they take beyond the medians.
ordered_json slow_layers(const Scenario& scenario, size_t series) {
  std::map<std::string, std::vector<double>> by_op;
  for (const Row& row : scenario.rows) {
    if (row.layer >= 0 && row.cells[series].time_us) {
      by_op[id_in_layer(row.op)].push_back(*row.cells[series].time_us);
    }
  }
  struct Layer {
    double us = 0;
    double median_us = 0;
  };
  std::map<int64_t, Layer> layers;
  for (auto& [op, times] : by_op) {
    std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
  }
  for (const Row& row : scenario.rows) {
    const auto found = by_op.find(id_in_layer(row.op));
    constexpr size_t kFewestLayers = 5;
    if (row.layer >= 0 && row.cells[series].time_us && found->second.size() >= kFewestLayers) {
      Layer& layer = layers[row.layer];
      layer.us += *row.cells[series].time_us;
      layer.median_us += found->second[found->second.size() / 2];
    }
  }
  constexpr double kStandsOut = 1.15;
  constexpr size_t kMostLayers = 3;
  std::vector<std::pair<double, int64_t>> sorted;
  for (const auto& [number, layer] : layers) {
    if (layer.us > kStandsOut * layer.median_us) {
      sorted.emplace_back(layer.us - layer.median_us, number);
    }
  }
  std::ranges::sort(sorted, std::greater{});
  sorted.resize(std::min(kMostLayers, sorted.size()));
  ordered_json list = ordered_json::array();
  for (const auto& [more_us, number] : sorted) {
    list.push_back({{"layer", number}, {"us", rounded(layers[number].us)}, {"more", rounded(more_us)}});
  }
  return list;
}

// Rows with the same phase and name are one sum. `name_of`: the row's text.
template <typename NameOf>
std::vector<OpSum> sums_by(const Scenario& scenario, NameOf name_of) {
  std::map<std::pair<Phase, std::string>, size_t> places;
  std::vector<OpSum> sums;
  for (const Row& row : scenario.rows) {
    const std::string name(name_of(row));
    const auto [place, is_new] = places.try_emplace({row.phase, name}, sums.size());
    if (is_new) {
      sums.push_back(
          {.op = name, .phase = row.phase, .us = std::vector<std::optional<double>>(scenario.series.size())});
    }
    OpSum& sum = sums[place->second];
    ++sum.num_rows;
    sum.flops += static_cast<double>(row.flops);
    sum.bytes += static_cast<double>(row.roofline_bytes());
    for (size_t s = 0; s < scenario.series.size(); ++s) {
      add_to(sum.us[s], row.cells[s].time_us);
    }
  }
  return sums;
}

}  // namespace

void add_to(std::optional<double>& sum, const std::optional<double>& value) {
  if (value) {
    sum = sum.value_or(0) + *value;
  }
}

std::vector<OpSum> sums_by_op(const Scenario& scenario) {
  return sums_by(scenario, [](const Row& row) { return id_in_layer(row.op); });
}

std::vector<OpSum> sums_by_phase(const Scenario& scenario) {
  return sums_by(scenario, [](const Row& row) { return std::string(phase_name(row.phase)); });
}

ordered_json findings_json(const Scenario& scenario, const std::vector<OpSum>& by_op) {
  const size_t main = scenario.main_series();
  const std::vector<OpSum> by_phase = sums_by_phase(scenario);
  const auto sums_of = [&](std::initializer_list<size_t> series) -> const std::vector<OpSum>& {
    const bool is_shared_out = std::ranges::any_of(
        series, [&](size_t s) { return scenario.series[s].source == model::RecordSource::kSimulated; });
    return is_shared_out ? by_phase : by_op;
  };
  ordered_json findings{
      {"costs", largest(sums_of({main}), 5, [&](const OpSum& sum) { return sum.us[main].value_or(0); })},
      {"gaps", ordered_json::array()},
      {"layers", slow_layers(scenario, main)}};
  for (size_t r = 0; r < scenario.ratios.size(); ++r) {
    const Ratio& ratio = scenario.ratios[r];
    if (ratio.above == main) {
      // An op without a limit has no gap: nothing says what it could do.
      const auto gap_us = [&](const OpSum& sum) {
        const double below = sum.us[ratio.below].value_or(0);
        return below > 0 ? sum.us[ratio.above].value_or(0) - below : 0;
      };
      findings["gaps"].push_back({{"ratio", r}, {"ops", largest(sums_of({ratio.above, ratio.below}), 3, gap_us)}});
    }
  }
  return findings;
}

}  // namespace report
