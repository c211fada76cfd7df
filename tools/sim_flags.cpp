#include "tools/sim_flags.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "tools/cli.hpp"

namespace tools {
namespace {

// Only the tables asked for, in the order of the command; all when none is named.
std::vector<simulator::Table> selected(std::vector<simulator::Table> tables, const std::vector<std::string>& names) {
  std::string known;
  for (const simulator::Table& table : tables) {
    known += (known.empty() ? "" : ", ") + table.name;
  }
  for (const std::string& name : names) {
    if (std::ranges::find(tables, name, &simulator::Table::name) == tables.end()) {
      model::throw_input_error("--table {}: expected one of {}", name, known);
    }
  }
  if (!names.empty()) {
    std::erase_if(tables,
                  [&](const simulator::Table& table) { return std::ranges::find(names, table.name) == names.end(); });
  }
  return tables;
}

}  // namespace

void add_output(CLI::App& app, OutputFlags& output) {
  app.add_option("--table", output.tables, "only these tables (names as in --json)")->delimiter(',');
  auto* json = app.add_flag("--json", output.json, "one object, exact integers, units in the names");
  app.add_flag("--csv", output.csv, "comma-separated values, exact integers, units in the names")->excludes(json);
}

void print_tables(std::vector<simulator::Table> all, const OutputFlags& output) {
  const std::vector<simulator::Table> tables = selected(std::move(all), output.tables);
  if (output.json) {
    nlohmann::ordered_json document;
    for (const simulator::Table& table : tables) {
      document[table.name] = simulator::table_json(table);
    }
    fmt::print("{}\n", document.dump(1));
    return;
  }
  for (const simulator::Table& table : tables) {
    const bool is_first = &table == tables.data();
    if (output.csv) {
      fmt::print("{}{}{}",
                 is_first ? "" : "\n",
                 tables.size() > 1 ? "# " + table.name + "\n" : "",
                 simulator::table_csv(table));
    } else {
      fmt::print("{}{}", is_first ? "" : "\n", simulator::table_text(table));
    }
  }
}

void print_validation(std::vector<simulator::Table> tables, const OutputFlags& output) {
  if (!output.json || !output.tables.empty()) {
    print_tables(std::move(tables), output);
    return;
  }
  auto document = nlohmann::ordered_json::object();
  for (const simulator::Table& table : tables) {
    if (table.is_record) {
      document.update(simulator::table_json(table));
    }
  }
  for (const simulator::Table& table : tables) {
    document[table.name] = simulator::table_json(table);
  }
  fmt::print("{}\n", document.dump(1));
}

model::ParallelLayout LayoutFlags::layout() const {
  return simulator::resolve(shorthand.empty() ? request
                                              : simulator::merged(request, simulator::parse_shorthand(shorthand)));
}

void add_layout(CLI::App& app, LayoutFlags& flags) {
  auto& request = flags.request;
  app.add_option("--layout", flags.shorthand, "shorthand: tp8, tp4pp2, dep8, tep8, tp4dp8ep32sp");
  app.add_option(
      "--tp,--tp-size,--tensor-parallel-size", request.tp, "ranks that share heads, dense and shared FFN, vocabulary");
  app.add_option("--ep,--ep-size,--moe-ep-size,--expert-parallel-size",
                 request.ep,
                 "ranks that share the experts (default: tp * dp if dp is above 1, else 1)");
  app.add_option(
      "--dp,--dp-size,--attention-dp-size,--data-parallel-size", request.dp, "replicas of all but the experts");
  app.add_option("--pp,--pp-size,--pipeline-parallel-size", request.pp, "stages of layers");
  app.add_option("--moe-tp,--moe-tp-size,--etp", request.moe_tp, "ranks that share one expert: tp / ep");
  app.add_flag("--sp,--sequence-parallel", request.sequence_parallel, "split the tokens of a MoE layer over tp");
  app.add_flag("--enable-expert-parallel", request.expert_parallel, "ep = tp * dp");
  app.add_flag("--enable-dp-attention", request.dp_inside_tp, "tp counts the ranks of all dp groups, as in SGLang");
}

std::vector<int64_t> parse_counts(const std::string& argument) {
  std::string text = argument;
  std::error_code error;
  if (std::filesystem::is_regular_file(argument, error)) {
    std::ifstream file(argument, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  for (char& symbol : text) {
    symbol = symbol == '\n' || symbol == '\r' || symbol == '\t' || symbol == ' ' ? ',' : symbol;
  }
  std::vector<int64_t> counts;
  for (const std::string& item : split_list(text)) {
    constexpr size_t kMaxDigits = 12;
    if (item.size() > kMaxDigits || item.find_first_not_of("0123456789") != std::string::npos) {
      model::throw_input_error("--load {}: count {} is '{}', expected whole numbers of token copies, or a file of them",
                               model::printable(argument),
                               counts.size() + 1,
                               model::printable(item));
    }
    counts.push_back(std::stoll(item));
  }
  if (counts.empty()) {
    model::throw_input_error("--load {}: expected token copies of each expert, or a file of them",
                             model::printable(argument));
  }
  return counts;
}

}  // namespace tools
