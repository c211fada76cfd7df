// dsv3-sim: what a deployment holds and moves, counted from the model's description.
#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "simulator/cost_tables.hpp"
#include "simulator/step_model.hpp"
#include "simulator/step_shares.hpp"
#include "simulator/walk_tables.hpp"
#include "tools/cli.hpp"
#include "tools/sim_flags.hpp"
#include "tools/sim_lookup.hpp"
#include "tools/sim_moe.hpp"
#include "tools/sim_planning.hpp"
#include "tools/sim_timing.hpp"

namespace tools {
namespace {

struct CostFlags {
  std::string model = "deepseek-v3";
  std::string load;
  simulator::CostOptions options;
  OutputFlags output;
};

int run_cost(CostFlags& flags) {
  if (!flags.load.empty()) {
    flags.options.load = parse_counts(flags.load);
  }
  print_tables(simulator::cost_tables(simulator::load_model(flags.model), flags.options), flags.output);
  return kExitOk;
}

void add_cost(CLI::App& app, CostFlags& flags) {
  auto& options = flags.options;
  const std::string models = fmt::format("{}, or a config.json", simulator::built_in_model_names());
  app.add_option("--model,--model-path", flags.model, models)->capture_default_str();
  app.add_option("--batch", options.batches, "tokens of a step (of a rank where it says so)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--ep", options.eps, "expert-parallel sizes")->delimiter(',')->capture_default_str();
  app.add_option("--context", options.contexts, "tokens in the cache of a sequence")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--gpus-per-node", options.gpus_per_node, "GPUs in one NVLink domain")->capture_default_str();
  app.add_option("--ib-gb-per-s", options.ib_gb_per_s, "network of a GPU, one direction")->capture_default_str();
  app.add_option("--nvlink-gb-per-s", options.nvlink_gb_per_s, "NVLink of a GPU, one direction")->capture_default_str();
  auto* load =
      app.add_option("--load", flags.load, "token copies of each expert of a layer: a list, or a file of them");
  app.add_option("--capacity-factor", options.capacity_factor, "slots of an expert over the mean load")
      ->capture_default_str()
      ->needs(load);
  add_output(app, flags.output);
  app.footer(
      "\nExample:\n"
      "  $ dsv3-sim cost --model deepseek-v3 --batch 1,32,128 --table batch\n"
      "  Read in one step by a batch, routing uniform, both tables counted\n"
      "    tokens  active experts  rows per expert  per active one  parameters  of experts    FP8     BF16\n"
      "                of a layer             Tk/E            rows           B           B     GB       GB\n"
      "         1             8.0             0.03            1.00        37.6        20.4   39.5     75.1\n"
      "        32           163.3             1.00            1.57       434.3       417.2  436.3    868.6\n"
      "       128           251.6             4.00            4.07       659.8       642.7  661.9  1,319.6\n");
}

struct WalkFlags {
  std::string model = "deepseek-v3";
  std::string gpu = "h100";
  std::string engine = "ideal";
  std::string phase = "decode";
  simulator::StepShape shape;
  int64_t prompt_len = 4096;
  int64_t prefix_len = 0;
  bool all_layers = false;
  LayoutFlags layout;
  OutputFlags output;
};

// The step of the engine in this layout, with as many redundant experts as make them divide. Prompts go one after another.
simulator::StepShares predicted(const model::ParallelPlan& plan,
                                const simulator::Walk& walk,
                                const simulator::Hardware& hardware,
                                const simulator::EngineProfile& engine) {
  const model::ModelConfig& config = plan.config;
  const simulator::StepShape& shape = walk.shape;
  simulator::RankLayout rank{.layout = plan.layout};
  const int64_t ep = plan.layout.ep;
  rank.redundant_experts = (config.n_routed_experts + ep - 1) / ep * ep - config.n_routed_experts;
  check_rank(config, rank);
  const auto fits = simulator::choose_fits(simulator::built_in_calibrations(), hardware);
  simulator::MoeCurves curves({.skew = simulator::parse_skew("balanced")});
  const simulator::StepModel model(config, hardware, fits, engine, rank, curves);
  const auto sequences = static_cast<double>(shape.num_sequences);
  const auto cached = static_cast<double>(shape.num_cached);
  const auto new_tokens = static_cast<double>(shape.num_new);
  simulator::StepCost cost;
  if (shape.phase == simulator::Phase::kDecode) {
    cost = model.decode({.sequences = sequences, .kv_len = cached + 1});
  } else {
    const simulator::StepCost prompt = model.prefill({.num_cached = cached, .new_tokens = new_tokens});
    cost = simulator::weighted_sum({&prompt, 1}, sequences);
  }
  return simulator::share_out(config, walk, simulator::walk_floors(walk, config, hardware), cost);
}

int run_walk(const WalkFlags& flags) {
  const simulator::DescribedModel described = simulator::load_model(flags.model);
  if (described.mla_config() == nullptr) {
    model::throw_input_error(
        "walk --model {}: its attention is {}, expected a model with MLA (deepseek-v3, kimi-k2, or a config.json)",
        flags.model,
        described.attention);
  }
  simulator::StepShape shape = flags.shape;
  if (flags.phase == "decode") {
    shape.num_cached = flags.prompt_len;
  } else {
    if (flags.prefix_len >= flags.prompt_len) {
      model::throw_input_error(
          "--prefix {}: expected fewer than the {} tokens of --isl", flags.prefix_len, flags.prompt_len);
    }
    shape.phase = simulator::Phase::kPrefill;
    shape.num_cached = flags.prefix_len;
    shape.num_new = flags.prompt_len - flags.prefix_len;
  }
  const simulator::Hardware hardware = simulator::load_hardware(flags.gpu);
  const model::ParallelPlan plan = simulator::plan_layout(*described.mla_config(), flags.layout.layout());
  const simulator::Walk walk = simulator::walk(plan, shape);
  simulator::WalkTables tables{.plan = plan, .walk = walk, .hardware = hardware};
  tables.merge_layers = !flags.all_layers && !flags.output.json && !flags.output.csv;
  const simulator::EngineProfile engine = simulator::load_engine(flags.engine);
  try {
    tables.times = predicted(plan, walk, hardware, engine);
    tables.predicted_by = fmt::format("constants of {}, routing uniform", flags.engine);
  } catch (const model::InputError& error) {
    tables.predicted_by = fmt::format("nothing: {}", error.what());  // a layout may be cut as no engine runs it
  }
  print_tables(simulator::walk_tables(tables), flags.output);
  return kExitOk;
}

void add_walk(CLI::App& app, WalkFlags& flags) {
  app.add_option("--model,--model-path", flags.model, "deepseek-v3, kimi-k2, or a config.json")->capture_default_str();
  app.add_option("--system,--gpu", flags.gpu, simulator::built_in_hardware_names() + ", or a hardware file")
      ->capture_default_str();
  app.add_option("--engine", flags.engine, simulator::engine_names() + ": whose time is predicted")
      ->capture_default_str();
  app.add_option("--phase", flags.phase, "decode (one token a sequence) or prefill")
      ->check(CLI::IsMember({"decode", "prefill"}))
      ->capture_default_str();
  app.add_option("--bs,--batch-size", flags.shape.num_sequences, "sequences of a DP rank")->capture_default_str();
  app.add_option("--isl", flags.prompt_len, "prompt tokens: fed in prefill, in the cache in decode")
      ->capture_default_str();
  app.add_option("--prefix", flags.prefix_len, "of them already in the cache (prefill)")->check(CLI::NonNegativeNumber);
  app.add_flag("--mtp", flags.shape.with_mtp, "run the MTP layers behind the main model");
  add_layout(app, flags.layout);
  app.add_flag("--all-layers",
               flags.all_layers,
               "rows for every layer instead of once for equal neighbours (--json, --csv: always)");
  add_output(app, flags.output);
  app.footer(
      "\nExample:\n"
      "  $ dsv3-sim walk --layout dep8 --bs 32 --system h200 --table deployment\n"
      "  Decode step on 8 GPUs, NVIDIA H200 SXM 141 GB\n"
      "    phase                                 decode\n"
      "    layout                                tp1 pp1 dp8 ep8\n"
      "    GPUs                                  8\n"
      "    sequences of a DP rank                32\n"
      "    new tokens of a sequence              1\n"
      "    cached tokens of a sequence           4,096\n"
      "    tokens of a DP rank                   32\n"
      "    tokens of all                         256\n"
      "    weights held by rank 0, MTP included  106.40 GB\n"
      "    memory of a GPU                       141 GB\n"
      "    do the weights fit                    yes\n"
      "    floor of the ops, one after another   22,870.2 us\n"
      "    floor of the collectives              627.3 us\n"
      "    predicted time of the step            36,595.3 us\n"
      "      of it ops                           34,091.2 us\n"
      "      collectives                         2,429.1 us\n"
      "      waiting for the slowest rank        75.1 us\n"
      "      engine                              0.0 us\n"
      "    predicted by                          constants of ideal, routing uniform\n");
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  CLI::App app("Counts what a deployment of a mixture-of-experts model holds, reads and moves, and predicts its times.",
               "dsv3-sim");
  tools::describe(app, "Exit codes: 0 ok, 2 bad usage or input.");
  app.require_subcommand(1);
  tools::CostFlags cost;
  auto* cost_command =
      app.add_subcommand("cost", "parameters, bytes, FLOPs, cache and traffic that follow from sizes alone");
  tools::add_cost(*cost_command, cost);
  tools::WalkFlags walk;
  auto* walk_command = app.add_subcommand(
      "walk", "one token's journey: every op with its shapes, weights, FLOPs, collectives and floor");
  tools::add_walk(*walk_command, walk);
  auto* skew_command =
      app.add_subcommand("skew", "how unequal experts make ranks, what that costs, and what EPLB takes back");
  auto* alltoall_command = app.add_subcommand(
      "alltoall", "dispatch and combine by EP size, tokens and back end, even and with unequal experts");
  std::vector<tools::SimCommand> commands{{cost_command, [&] { return tools::run_cost(cost); }},
                                          {walk_command, [&] { return tools::run_walk(walk); }},
                                          {skew_command, tools::add_skew(*skew_command)},
                                          {alltoall_command, tools::add_alltoall(*alltoall_command)}};
  for (tools::SimCommand& command : tools::add_timing_commands(app)) {
    commands.push_back(std::move(command));
  }
  for (tools::SimCommand& command : tools::add_planning_commands(app)) {
    commands.push_back(std::move(command));
  }
  commands.push_back(tools::add_lookup(app));
  return tools::run_main(app, argc, argv, [&] {
    const auto parsed =
        std::ranges::find_if(commands, [](const tools::SimCommand& command) { return command.parsed->parsed(); });
    return parsed->run();
  });
}
