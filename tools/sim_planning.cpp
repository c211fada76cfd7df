#include "tools/sim_planning.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "model/check.hpp"
#include "simulator/launch_command.hpp"
#include "simulator/search.hpp"
#include "simulator/what_if.hpp"
#include "tools/cli.hpp"
#include "tools/sim_deployment.hpp"

namespace tools {
namespace {

struct SearchFlags {
  DeploymentFlags deployment;
  simulator::SearchRequest search;
  std::string emit;
};

int run_search(SearchFlags& flags) {
  simulator::SearchRequest& request = flags.search;
  request.base = request_of(flags.deployment);
  simulator::MoeCurves curves = curves_of(flags.deployment);
  const auto fits = calibrations(flags.deployment.calibration);
  const simulator::SearchResult result = simulator::search(request, fits, flags.deployment.changes, curves);
  if (!flags.emit.empty()) {
    // The last one has most tokens/s a GPU.
    fmt::print("{}",
               simulator::launch_command(
                   result.pareto.back().deployment, flags.emit, request.base.model.value_or("deepseek-v3")));
    return kExitOk;
  }
  const OutputFlags& output = flags.deployment.output;
  if (!output.json && !output.csv) {
    fmt::print("{}\n", simulator::pareto_plot(result));
  }
  print_tables({simulator::pareto_table(result, request.dollars_per_gpu_hour)}, output);
  return kExitOk;
}

SimCommand add_search(CLI::App& app) {
  CLI::App* command = app.add_subcommand("search", "the layouts and batches that no others beat");
  const auto flags = std::make_shared<SearchFlags>();
  add_workload(*command, flags->deployment);
  auto& search = flags->search;
  command->add_option("--gpus", search.gpus, "GPUs to fill with workers")->delimiter(',')->capture_default_str();
  command->add_option("--ttft", search.most_ttft_ms, "limit of the time to the first token, ms");
  command->add_option("--tpot", search.most_tpot_ms, "limit of the time per token, ms");
  command
      ->add_option(
          "--price", search.dollars_per_gpu_hour, "dollars for a GPU and hour: adds the cost of a million tokens")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--emit",
                   flags->emit,
                   "instead, the command that starts sglang or vllm in the layout with most tokens/s a GPU")
      ->check(CLI::IsMember({"sglang", "vllm"}));
  add_output(*command, flags->deployment.output);
  return {command, [flags] { return run_search(*flags); }};
}

// A preset's name with flags of estimate behind it, or flags alone, in one argument.
simulator::Compared compared(const std::string& text) {
  CLI::App parser("a deployment");
  DeploymentFlags flags;
  add_deployment(parser, flags);
  try {
    parser.parse(text.starts_with("-") ? text : "--preset " + text, false);
  } catch (const CLI::ParseError& error) {
    model::throw_input_error("compare '{}': {}; expected a preset ({}) or flags of estimate in quotes",
                             text,
                             error.what(),
                             simulator::preset_names());
  }
  const simulator::Deployment deployment = deployment_of(flags);
  simulator::MoeCurves curves = curves_of(flags);
  const auto fits = simulator::choose_fits(calibrations(flags.calibration), deployment.hardware);
  return {text, deployment, simulator::serve(deployment, fits, curves)};
}

SimCommand add_compare(CLI::App& app) {
  struct CompareFlags {
    std::string a;
    std::string b;
    OutputFlags output;
  };
  CLI::App* command = app.add_subcommand("compare", "two deployments side by side, and the parts that differ");
  const auto flags = std::make_shared<CompareFlags>();
  command->add_option("A", flags->a, "a preset, with flags of estimate behind it in quotes")->required();
  command->add_option("B", flags->b, "the same")->required();
  add_output(*command, flags->output);
  return {command, [flags] {
            print_tables(simulator::comparison_tables(compared(flags->a), compared(flags->b)), flags->output);
            return kExitOk;
          }};
}

SimCommand add_sensitivity(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("sensitivity", "how the time per token answers to each parameter of hardware and workload");
  const auto flags = std::make_shared<DeploymentFlags>();
  add_deployment(*command, *flags);
  return {command, [flags] {
            const simulator::Deployment deployment = deployment_of(*flags);
            const auto fits = simulator::choose_fits(calibrations(flags->calibration), deployment.hardware);
            simulator::MoeCurves curves = curves_of(*flags);
            print_tables({simulator::sensitivity_table(deployment, fits, curves)}, flags->output);
            return kExitOk;
          }};
}

}  // namespace

std::vector<SimCommand> add_planning_commands(CLI::App& app) {
  return {add_search(app), add_compare(app), add_sensitivity(app)};
}

}  // namespace tools
