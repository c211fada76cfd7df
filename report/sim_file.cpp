#include "report/sim_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "model/check.hpp"
#include "simulator/json_file.hpp"

namespace report {
namespace {

struct KnownTable {
  std::string_view name;
  std::vector<std::string> numbers;  // columns that every row needs
  std::vector<std::string> texts = {};
};

const std::vector<KnownTable>& known_tables() {
  static const std::vector<KnownTable> tables{
      {"estimate",
       {"tpot_ms", "tpot_low_ms", "tpot_high_ms", "step_ms", "memory_gb", "memory_usable_gb"},
       {"decode_layout"}},
      {"memory", {"bytes"}, {"item"}},
      {"pareto",
       {"tokens_per_s_per_user", "tokens_per_s_per_gpu", "tpot_ms", "ttft_ms", "num_total_gpus", "bs"},
       {"parallel"}},
      {"matrix", {"from", "to_0"}},
      {"skew",
       {"ep", "tokens_per_rank", "rank_max_over_mean_p50", "step_ms_p50", "step_ms_p99", "wait_ms", "cost_ms"},
       {"placement"}},
      {"expert_load", {"layer", "expert_0"}},
      {"rank_load", {"layer", "rank_0"}, {"placement"}}};
  return tables;
}

void check_row(const nlohmann::json& row, const KnownTable& table, const std::string& where) {
  if (!row.is_object()) {
    model::throw_input_error("{}: expected an object", where);
  }
  for (const std::string& column : table.numbers) {
    if (!row.contains(column) || !row[column].is_number()) {
      model::throw_input_error("{}: no number {} in it, expected a table of dsv3-sim --json", where, column);
    }
  }
  for (const std::string& column : table.texts) {
    if (!row.contains(column) || !row[column].is_string()) {
      model::throw_input_error("{}: no text {} in it, expected a table of dsv3-sim --json", where, column);
    }
  }
}

}  // namespace

std::vector<SimTable> read_sim_file(const std::filesystem::path& path, std::vector<Notice>& notices) {
  const std::string file = path.string();
  nlohmann::json root = simulator::read_json_file(path);
  if (!root.is_object()) {
    root = nlohmann::json::object();
  }
  std::vector<SimTable> tables;
  std::vector<std::string> others;
  for (const auto& [name, value] : root.items()) {
    const auto known = std::ranges::find(known_tables(), name, &KnownTable::name);
    if (known == known_tables().end()) {
      // What the same commands print beside them.
      constexpr std::array<std::string_view, 6> kBeside{"costs", "notes", "ranks", "tokens", "decode_step", "prompt"};
      if (std::ranges::find(kBeside, name) == kBeside.end()) {
        others.push_back(name);
      }
      continue;
    }
    const bool is_list = value.is_array();
    for (size_t i = 0; i < (is_list ? value.size() : 1); ++i) {
      check_row(is_list ? value[i] : value,
                *known,
                is_list ? fmt::format("{}: {}[{}]", file, name, i) : fmt::format("{}: {}", file, name));
    }
    if (!is_list || !value.empty()) {
      tables.push_back({file, name, value});
    }
  }
  if (tables.empty()) {
    std::vector<std::string_view> names;
    std::ranges::transform(known_tables(), std::back_inserter(names), &KnownTable::name);
    model::throw_input_error(
        "{}: no table that a report shows, expected what dsv3-sim --json prints with {}", file, fmt::join(names, ", "));
  }
  if (!others.empty()) {
    notices.push_back(
        {fmt::format("{}: tables without a place in the report: {}", file, fmt::join(others, ", ")), false});
  }
  return tables;
}

}  // namespace report
