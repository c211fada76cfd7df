#include "tools/sim_planning.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "model/check.hpp"
#include "simulator/launch_command.hpp"
#include "simulator/pipeline.hpp"
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
  command->add_flag(
      "--disaggregated", search.disaggregated, "prefill on GPUs of its own, matched to the decode workers");
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
  const auto fits = fits_of(flags, deployment);
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
  add_output(*command, flags->output);
  return {command, [flags] {
            const simulator::Deployment deployment = deployment_of(*flags);
            const auto fits = fits_of(*flags, deployment);
            simulator::MoeCurves curves = curves_of(*flags);
            print_tables({simulator::sensitivity_table(deployment, fits, curves)}, flags->output);
            return kExitOk;
          }};
}

SimCommand add_pipeline(CLI::App& app) {
  struct PipelineFlags {
    int64_t num_stages = 16;
    int64_t num_batches = 64;
    simulator::PipelineTimes times;
    OutputFlags output;
  };
  CLI::App* command = app.add_subcommand("pipeline", "bubbles of pipeline schedules, by formula and by running them");
  const auto flags = std::make_shared<PipelineFlags>();
  command->add_option("--stages,--pp", flags->num_stages, "ranks of the pipeline")->capture_default_str();
  command->add_option("--micro-batches", flags->num_batches, "of one pass over the pipeline")->capture_default_str();
  auto& times = flags->times;
  const auto add_time = [&](const char* name, double& value, const char* what) {
    command->add_option(name, value, what)->check(CLI::PositiveNumber)->capture_default_str();
  };
  add_time("--forward", times.forward, "F: a micro-batch forward on one stage");
  add_time("--backward", times.backward, "B: backward, for inputs and weights");
  add_time("--weight", times.weight, "W: of B the part for weights");
  add_time("--both", times.both, "F&B: a forward and a backward overlapped");
  add_output(*command, flags->output);
  command->footer(
      "\nExample:\n"
      "  $ dsv3-sim pipeline --pp 16 --micro-batches 48 --both 2.2\n"
      "  Schedules of one pipeline, times in the unit of the flags\n"
      "    schedule  bubble by formula  by running it  all micro-batches  idle  formula\n"
      "                                                                     %\n"
      "    forward              15.000         15.000             63.000  23.8  (P-1) F\n"
      "    1F1B                 45.000         45.000            189.000  23.8  (P-1)(F+B)\n"
      "    ZB1P                 15.000         15.000            159.000   9.4  (P-1)(F+B-2W)\n"
      "    DualPipe              8.400          8.400            127.600   6.6  (P/2-1)(F&B+B-3W)\n");
  return {command, [flags] {
            if (flags->times.weight >= flags->times.backward) {
              model::throw_input_error(
                  "--weight {}: expected less than --backward {}", flags->times.weight, flags->times.backward);
            }
            print_tables({simulator::pipeline_table(flags->num_stages, flags->num_batches, flags->times)},
                         flags->output);
            return kExitOk;
          }};
}

}  // namespace

std::vector<SimCommand> add_planning_commands(CLI::App& app) {
  return {add_search(app), add_compare(app), add_sensitivity(app), add_pipeline(app)};
}

}  // namespace tools
