#include "simulator/expert_loads.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "simulator/csv_table.hpp"
#include "simulator/json_file.hpp"
#include "simulator/routing_trace.hpp"

namespace simulator {
namespace {

using Loads = std::vector<std::vector<double>>;

constexpr int64_t kMostExperts = 1 << 16;

double count_of(const std::string& text, const CsvTable& csv, int64_t line, const std::string& column) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0) {
    model::throw_input_error(
        "{}:{}: {} {}: expected a count, 0 or more", csv.path, line, column, model::printable(text));
  }
  return value;
}

// The expert that a wide column counts: "expert_7", "e7" or "7".
std::optional<int64_t> expert_of_column(std::string_view column) {
  for (const std::string_view prefix : {"expert_", "e", ""}) {
    if (column.starts_with(prefix) && column.size() > prefix.size()) {
      int64_t expert = 0;
      const char* end_of_column = column.data() + column.size();
      const auto [end, error] = std::from_chars(column.data() + prefix.size(), end_of_column, expert);
      if (error == std::errc() && end == end_of_column && expert >= 0 && expert < kMostExperts) {
        return expert;
      }
    }
  }
  return std::nullopt;
}

Loads in_order(const std::map<int64_t, std::map<int64_t, double>>& counts, int64_t num_experts) {
  Loads loads;
  for (const auto& [layer, experts] : counts) {
    loads.emplace_back(static_cast<size_t>(num_experts), 0.0);
    for (const auto& [expert, count] : experts) {
      loads.back()[static_cast<size_t>(expert)] = count;
    }
  }
  return loads;
}

Loads from_csv(const std::filesystem::path& path) {
  const CsvTable csv = read_csv(path);
  std::optional<size_t> layer_column;
  std::optional<size_t> expert_column;
  std::optional<size_t> count_column;
  std::map<size_t, int64_t> wide_columns;
  for (size_t i = 0; i < csv.columns.size(); ++i) {
    const std::string& column = csv.columns[i];
    if (column == "layer" || column == "layer_id" || column == "moe_layer") {
      layer_column = i;
    } else if (column == "expert" || column == "expert_id") {
      expert_column = i;
    } else if (column == "count" || column == "tokens" || column == "load") {
      count_column = i;
    } else if (const std::optional<int64_t> expert = expert_of_column(column)) {
      wide_columns[i] = *expert;
    }
  }
  const bool is_long = layer_column && expert_column && count_column;
  if (!is_long && wide_columns.empty()) {
    model::throw_input_error(
        "{}: expected loads with the columns layer, expert and count, or layer and one column an expert (expert_0, "
        "...)",
        csv.path);
  }
  std::map<int64_t, std::map<int64_t, double>> counts;
  int64_t num_experts = 0;
  int64_t row_idx = 0;
  for (const CsvRow& row : csv.rows) {
    const auto number = [&](size_t column) { return count_of(row.cells[column], csv, row.line, csv.columns[column]); };
    const auto whole = [&](size_t column) {
      const double value = number(column);
      if (value != std::floor(value) || value >= kMostExperts) {
        model::throw_input_error("{}:{}: {} {}: expected a whole number below {}",
                                 csv.path,
                                 row.line,
                                 csv.columns[column],
                                 model::printable(row.cells[column]),
                                 kMostExperts);
      }
      return static_cast<int64_t>(value);
    };
    const int64_t layer = layer_column ? whole(*layer_column) : row_idx;
    ++row_idx;
    if (is_long) {
      const int64_t expert = whole(*expert_column);
      counts[layer][expert] += number(*count_column);
      num_experts = std::max(num_experts, expert + 1);
    } else {
      for (const auto& [column, expert] : wide_columns) {
        counts[layer][expert] += number(column);
        num_experts = std::max(num_experts, expert + 1);
      }
    }
  }
  return in_order(counts, num_experts);
}

void add_step(Loads& loads, const nlohmann::json& layers, const std::string& where) {
  if (loads.empty()) {
    loads.resize(layers.size());
  }
  if (layers.size() != loads.size()) {
    model::throw_input_error("{}: a step with {} layers after one with {}", where, layers.size(), loads.size());
  }
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const nlohmann::json& experts = layers[layer];
    if (!experts.is_array() || experts.empty()) {
      model::throw_input_error("{}: expected counts as [layers][experts]", where);
    }
    loads[layer].resize(std::max(loads[layer].size(), experts.size()), 0.0);
    for (size_t expert = 0; expert < experts.size(); ++expert) {
      if (!experts[expert].is_number() || experts[expert].get<double>() < 0) {
        model::throw_input_error("{}: layer {}, expert {}: expected a count, 0 or more", where, layer, expert);
      }
      loads[layer][expert] += experts[expert].get<double>();
    }
  }
}

Loads from_json(const std::filesystem::path& path) {
  const nlohmann::json document = read_json_file(path);
  const std::string where = path.string();
  const nlohmann::json* counts = &document;
  if (document.is_object() && document.contains("logical_count")) {
    counts = &document["logical_count"];
  }
  const auto is_nested = [](const nlohmann::json& value, int depth) {
    const nlohmann::json* inner = &value;
    for (int i = 0; i < depth; ++i) {
      if (!inner->is_array() || inner->empty()) {
        return false;
      }
      inner = &inner->front();
    }
    return inner->is_number();
  };
  Loads loads;
  if (is_nested(*counts, 3)) {
    for (const nlohmann::json& step : *counts) {
      add_step(loads, step, where);
    }
  } else if (is_nested(*counts, 2)) {
    add_step(loads, *counts, where);
  } else {
    model::throw_input_error("{}: expected counts as [layers][experts], alone or under \"logical_count\"", where);
  }
  return loads;
}

// Engines list dense layers too, with nothing in them: those are left out.
Loads checked(Loads loads, const std::string& where) {
  for (size_t layer = 0; layer < loads.size(); ++layer) {
    if (loads[layer].size() != loads.front().size()) {
      model::throw_input_error(
          "{}: layer {} has {} experts, the first {}", where, layer, loads[layer].size(), loads.front().size());
    }
  }
  std::erase_if(loads, [](const auto& layer) { return std::accumulate(layer.begin(), layer.end(), 0.0) <= 0; });
  if (loads.empty()) {
    model::throw_input_error("{}: expected a layer with a count above 0", where);
  }
  return loads;
}

}  // namespace

std::vector<std::vector<double>> read_expert_loads(const std::filesystem::path& path) {
  if (path.extension() == ".pt") {
    model::throw_input_error(
        "{}: write it as JSON first (recorder mode stat or stat_approx): python3 -c \"import json, sys, torch; d = "
        "torch.load(sys.argv[1]); "
        "json.dump(dict(logical_count=d['logical_count'].tolist()), open(sys.argv[2], 'w'))\" IN.pt OUT.json",
        path.string());
  }
  return checked(path.extension() == ".json" ? from_json(path) : from_csv(path), path.string());
}

std::vector<std::vector<double>> read_routing_trace(const std::filesystem::path& path) {
  return trace_loads(read_trace(path), 0);
}

}  // namespace simulator
