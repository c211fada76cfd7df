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
  const simulator::SearchResult result = simulator::search(request, fits, changes_of(flags.deployment), curves);
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
  command->footer(
      "\nExample:\n"
      "  $ dsv3-sim search --gpu h200 --gpus 8 --decode-only --tpot 9\n"
      "  tokens/s a GPU, both axes logarithmic\n"
      "        29 |*\n"
      "           |\n"
      "           |\n"
      "           |\n"
      "           |\n"
      "           |\n"
      "           |\n"
      "           |\n"
      "           |\n"
      "           |\n"
      "           |\n"
      "           |\n"
      "           |\n"
      "        16 |                                                           *\n"
      "           +------------------------------------------------------------\n"
      "            116                                                      128 tokens/s a user\n"
      "\n"
      "  Layouts that no other beats, of 55 points; the last has most tokens/s a GPU\n"
      "    layout           workers  prefill  GPUs  sequences  requests  tokens/s  tokens/s  a token  90 % from     to "
      " first token  memory  redundant\n"
      "                                             a DP rank              a user     a GPU       ms         ms     ms "
      "          ms      GB    experts\n"
      "    tp8 pp1 dp1 ep1        1  -           8          1         1     127.9      16.0     7.82       6.42   9.53 "
      "         344    87.6          0\n"
      "    tp8 pp1 dp1 ep1        1  -           8          2         2     116.3      29.1     8.60       7.05  10.47 "
      "         345    87.9          0\n");
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
  command->footer(
      "\nExample:\n"
      "  $ dsv3-sim compare h200-tp8 \"h200-tp8 --hbm x1.4\" --table parts\n"
      "  A decode step, parts that differ\n"
      "    part                         A      B   B - A\n"
      "                                ms     ms      ms\n"
      "    ffn: experts            10.335  7.382  -2.953\n"
      "    attention: cache         2.350  1.685  -0.665\n"
      "    engine: in the stream    0.963  0.770  -0.193\n"
      "    attention: projections   0.690  0.509  -0.181\n"
      "    ffn: shared expert       0.083  0.060  -0.024\n"
      "    ffn: router              0.297  0.280  -0.017\n"
      "    head: head               0.062  0.046  -0.017\n"
      "    ffn: dense layers        0.081  0.070  -0.011\n");
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
  command->footer(
      "\nExample:\n"
      "  $ dsv3-sim sensitivity --preset h200-tp8\n"
      "  Mean time per token, 31.46 ms: its slope\n"
      "    parameter               value  unit        slope       1 % more\n"
      "                                             ms/unit  % of the time\n"
      "    memory rate              4800  GB/s    -0.003353         -0.512\n"
      "    NVLink                    450  GB/s    -0.009549         -0.137\n"
      "    network of a GPU           50  GB/s     0.000000          0.000\n"
      "    BF16 peak                 989  TFLOPS  -0.001028         -0.032\n"
      "    FP8 peak                 1979  TFLOPS  -0.001439         -0.091\n"
      "    host time of a step      1050  us       0.001000          0.033\n"
      "    stream factor            1.05  1       19.257170          0.643\n"
      "    prefill factor           3.48  1        2.927057          0.324\n"
      "    requests in the system     32  1        0.591386          0.602\n"
      "    prompt                   4096  tokens   0.002668          0.347\n"
      "    answer                   1024  tokens  -0.009705         -0.316\n"
      "\n"
      "  One thing changed at a time\n"
      "    what if                               flag of estimate          a token  change  a prompt  change  "
      "tokens/s\n"
      "                                                                         ms       %        ms       %     a "
      "GPU\n"
      "    as it is                                                          31.46     0.0     336.5     0.0     "
      "125.8\n"
      "    memory x1.4                           --hbm x1.4                  26.93   -14.4     321.2    -4.5     "
      "146.8\n"
      "    NVLink x2                             --nvlink x2                 29.20    -7.2     270.8   -19.5     "
      "135.8\n"
      "    network of 800 Gb/s                   --nic 800G                  31.46     0.0     336.5     0.0     "
      "125.8\n"
      "    NVLink and network one domain         --nvlink-domain 8           31.46     0.0     336.5     0.0     "
      "125.8\n"
      "    FP8 accumulation in 34 bits, at most  --fp8-accumulation 34bit    30.82    -2.0     315.6    -6.2     "
      "128.5\n"
      "    20 SMs for communication              --comm-sms 20               32.16     2.2     359.4     6.8     "
      "123.0\n"
      "    communication co-processor            --comm-sms 0                31.46     0.0     336.5     0.0     "
      "125.8\n"
      "    FP8 cache                             --kv-dtype fp8              30.50    -3.0     336.5     0.0     "
      "129.8\n"
      "    equally popular experts               --skew balanced             34.72    10.4     336.5     0.0     "
      "114.1\n");
  return {command, [flags] {
            const simulator::Deployment deployment = deployment_of(*flags);
            const auto fits = fits_of(*flags, deployment);
            simulator::MoeCurves curves = curves_of(*flags);
            DeploymentFlags unchanged = *flags;
            unchanged.fp8_accumulation.clear();
            const simulator::WhatIfBase base{.as_built = simulator::build_deployment(request_of(*flags)),
                                             .fits = fits_of(unchanged, deployment),
                                             .changes = changes_of(*flags)};
            print_tables(
                {simulator::sensitivity_table(deployment, fits, curves), simulator::what_if_table(base, curves)},
                flags->output);
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
      "                                                                      %\n"
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
