#include "tools/sim_lookup.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "simulator/op_call.hpp"
#include "simulator/op_tables.hpp"
#include "tools/cli.hpp"
#include "tools/sim_flags.hpp"

namespace tools {
namespace {

struct LookupFlags {
  std::string tables;
  std::string gpu;
  std::string op;
  std::string at;
  OutputFlags output;
};

std::string op_names() {
  std::string names;
  for (const simulator::OpFamily family : simulator::kOpFamilies) {
    if (!simulator::op_axes(family).names.empty()) {
      names += (names.empty() ? "" : ", ") + std::string(simulator::op_family_info(family).name);
    }
  }
  return names;
}

simulator::OpFamily parse_op(const std::string& name) {
  for (const simulator::OpFamily family : simulator::kOpFamilies) {
    if (simulator::op_family_info(family).name == name && !simulator::op_axes(family).names.empty()) {
      return family;
    }
  }
  model::throw_input_error("--op {}: expected one of {}", model::printable(name), op_names());
}

// "n=7168,k=2048,m=64" in any order.
simulator::OpAxes parse_axes(const std::string& text, simulator::OpFamily family) {
  const auto& names = simulator::op_axes(family).names;
  const auto refuse = [&] {
    model::throw_input_error("--at {}: expected {}=, numbers above 0", model::printable(text), fmt::join(names, "=, "));
  };
  simulator::OpAxes axes{};
  for (const std::string& item : split_list(text)) {
    const size_t equals = std::min(item.find('='), item.size());
    const auto name = std::ranges::find(names, item.substr(0, equals));
    double value = 0;
    const char* begin = item.data() + std::min(equals + 1, item.size());
    const auto [end, error] = std::from_chars(begin, item.data() + item.size(), value);
    if (name == names.end() || error != std::errc() || end != item.data() + item.size() || !(value > 0) ||
        value > 1e12) {
      refuse();
    }
    axes.at(static_cast<size_t>(name - names.begin())) = value;
  }
  if (std::count(axes.begin(), axes.begin() + std::ssize(names), 0.0) > 0) {
    refuse();
  }
  return axes;
}

int run_lookup(const LookupFlags& flags) {
  const simulator::OpFamily family = parse_op(flags.op);
  const simulator::OpAxes axes = parse_axes(flags.at, family);
  const simulator::Hardware hardware = simulator::load_hardware(flags.gpu);
  const model::ModelConfig config = model::built_in_config("deepseek-v3");
  const auto tables = simulator::load_op_tables(flags.tables, hardware, config);
  const auto& table = tables[static_cast<size_t>(family)];
  if (table == nullptr) {
    model::throw_input_error("--tables {}: no row of {} on {}", flags.tables, flags.op, hardware.name);
  }
  const simulator::OpCall call = simulator::call_at(family, axes, config);
  const simulator::OpAnswer answer = table->at(axes, call.work);
  const auto fits = simulator::choose_fits(simulator::built_in_calibrations(), hardware);
  const auto& constants = fits[static_cast<size_t>(family)].fit.constants;
  const double by_constants_us = simulator::predict_us(family, constants, call.work, simulator::peaks(hardware));
  simulator::Table record{.name = "lookup",
                          .title = fmt::format("{} at {} on {}", flags.op, flags.at, hardware.title),
                          .columns = {{"time_us", "time", "us", 1, 2},
                                      {"how", "how"},
                                      {"floor_us", "hardware floor", "us", 1, 2},
                                      {"utilisation_pct", "floor of the time", "%", 1, 1},
                                      {"left_out_rows", "rows left out and answered so"},
                                      {"median_abs_error_pct", "  their error, median", "%", 1, 1},
                                      {"p90_abs_error_pct", "  p90", "%", 1, 1},
                                      {"by_constants_us", "by the fitted constants", "us", 1, 2},
                                      {"table_rows", "rows of the table"},
                                      {"below_floor_rows", "  dropped, faster than the hardware"},
                                      {"source", "source"}},
                          .is_record = true};
  record.add({answer.time_us,
              std::string(simulator::answer_kind_name(answer.kind)),
              answer.floor_us,
              100 * answer.floor_us / answer.time_us,
              answer.num_left_out,
              100 * answer.median_frac,
              100 * answer.p90_frac,
              by_constants_us,
              static_cast<int64_t>(table->num_points()),
              table->num_below_floor(),
              table->source(answer)});
  print_tables({record}, flags.output);
  return kExitOk;
}

}  // namespace

SimCommand add_lookup(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "lookup", "what a timing table says of one call: a row, between rows, or beyond them, and how far off that is");
  const auto flags = std::make_shared<LookupFlags>();
  command->add_option("--tables", flags->tables, "directory of timing tables, as for calibrate")->required();
  command->add_option("--system,--gpu", flags->gpu, simulator::built_in_hardware_names() + ", or a hardware file")
      ->required();
  command->add_option("--op", flags->op, op_names())->required();
  command->add_option("--at", flags->at, "the call's axes, as in n=7168,k=2048,m=64 (a wrong name lists them)")
      ->required();
  add_output(*command, flags->output);
  command->footer(
      "\nExample:\n"
      "  $ dsv3-sim lookup --tables measurements --gpu h200 --op gemm_fp8 --at n=7168,k=2048,m=96\n"
      "  gemm_fp8 at n=7168,k=2048,m=96 on NVIDIA H200 SXM 141 GB\n"
      "    time                                 10.57 us\n"
      "    how                                  exact row\n"
      "    hardware floor                       3.39 us\n"
      "    floor of the time                    32.0 %\n"
      "    rows left out and answered so        0\n"
      "      their error, median                0.0 %\n"
      "      p90                                0.0 %\n"
      "    by the fitted constants              11.54 us\n"
      "    rows of the table                    323\n"
      "      dropped, faster than the hardware  0\n"
      "    source                               gemm_dense.csv:1014: the row itself\n");
  return {command, [flags] { return run_lookup(*flags); }};
}

}  // namespace tools
