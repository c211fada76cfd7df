#include "tools/sim_timing.hpp"

#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "model/atomic_file.hpp"
#include "model/check.hpp"
#include "simulator/calibrate.hpp"
#include "simulator/deployment.hpp"
#include "simulator/estimate_tables.hpp"
#include "simulator/validate.hpp"
#include "tools/cli.hpp"
#include "tools/sim_flags.hpp"
#include "tools/sim_moe.hpp"

namespace tools {
namespace {

void write_text(const std::string& path, const std::string& text) {
  model::AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

std::vector<simulator::Calibration> calibrations(const std::string& path) {
  return path.empty() ? simulator::built_in_calibrations() : simulator::read_calibrations(path);
}

struct DeploymentFlags {
  simulator::DeploymentRequest request;
  LayoutFlags layout;
  LayoutFlags prefill_layout;
  std::string calibration;
  OutputFlags output;
};

// Where a preset and a flag speak of the same thing, the flag wins: presets only fill what was not given.
simulator::Deployment deployment_of(const DeploymentFlags& flags) {
  simulator::DeploymentRequest request = flags.request;
  request.layout = flags.layout.shorthand.empty()
                       ? flags.layout.request
                       : simulator::merged(flags.layout.request, simulator::parse_shorthand(flags.layout.shorthand));
  if (!flags.prefill_layout.shorthand.empty()) {
    request.prefill_layout = simulator::parse_shorthand(flags.prefill_layout.shorthand);
  }
  return simulator::build_deployment(request);
}

void add_deployment(CLI::App& command, DeploymentFlags& flags) {
  auto& request = flags.request;
  command.add_option("--preset", request.preset, "a published deployment: " + simulator::preset_names());
  command.add_option("--model,--model-path", request.model, "deepseek-v3, kimi-k2, or a config.json");
  command.add_option("--system,--gpu", request.gpu, simulator::built_in_hardware_names() + ", or a hardware file");
  command.add_option("--engine,--backend", request.engine, simulator::engine_names());
  command.add_option("--isl", request.prompt_tokens, "prompt tokens, mean");
  command.add_option("--osl", request.answer_tokens, "answer tokens, mean");
  auto* batch = command.add_option("--bs,--batch-size", request.batch, "sequences of a DP rank that should decode");
  command.add_option("--concurrency", request.concurrency, "requests in the system, all GPUs")->excludes(batch);
  command.add_option("--kv-dtype,--kv-cache-dtype", request.kv_dtype, "bf16 (what engines do by default) or fp8")
      ->check(CLI::IsMember({"bf16", "fp8"}));
  command
      .add_option("--mtp-acceptance", request.acceptance, "chance of each draft given the ones before: sets the depth")
      ->delimiter(',');
  command.add_option("--redundant-experts,--ep-num-redundant-experts,--num-redundant-experts",
                     request.redundant_experts,
                     "slots beyond the experts of a layer");
  command.add_flag("--eplb,--enable-eplb", request.eplb, "experts placed by load");
  command.add_flag(
      "--two-batch-overlap,--enable-two-batch-overlap", request.two_batch_overlap, "halves hide all-to-all");
  command.add_flag("--no-cuda-graph,--disable-cuda-graph", request.no_cuda_graph, "launch every kernel");
  command.add_flag("--early-engine", request.early_engine, "an engine release of 2025");
  command.add_flag("--decode-only", request.decode_only, "prefill happens elsewhere and keeps up");
  command.add_option("--workers", request.workers, "decode workers, each of the layout");
  command.add_option("--prefill-layout", flags.prefill_layout.shorthand, "prefill on GPUs of its own, shorthand");
  command.add_option("--prefill-workers", request.prefill_workers, "prefill workers");
  command.add_option("--memory-frac,--mem-fraction-static,--gpu-memory-utilization",
                     request.memory_frac,
                     "of a GPU's memory that may be used");
  command.add_option(
      "--calibration", flags.calibration, "constants written by calibrate, in place of the built-in ones");
  add_layout(command, flags.layout);
  add_output(command, flags.output);
}

SimCommand add_estimate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("estimate", "latency, throughput and memory of one deployment");
  const auto flags = std::make_shared<DeploymentFlags>();
  add_deployment(*command, *flags);
  return {command, [flags] {
            const simulator::Deployment deployment = deployment_of(*flags);
            const auto fits = simulator::choose_fits(calibrations(flags->calibration), deployment.hardware);
            simulator::ExpertShares shares;
            print_tables(simulator::estimate_tables(deployment, simulator::serve(deployment, fits, shares)),
                         flags->output);
            return kExitOk;
          }};
}

SimCommand add_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "where the time of a step and of a prompt goes; leaves add up");
  const auto flags = std::make_shared<DeploymentFlags>();
  add_deployment(*command, *flags);
  return {command, [flags] {
            const simulator::Deployment deployment = deployment_of(*flags);
            const auto fits = simulator::choose_fits(calibrations(flags->calibration), deployment.hardware);
            simulator::ExpertShares shares;
            print_tables(simulator::explain_tables(simulator::serve(deployment, fits, shares), fits), flags->output);
            return kExitOk;
          }};
}

struct CalibrateFlags {
  std::string tables;
  std::string silicon;
  std::string out;
  OutputFlags output;
};

int run_calibrate(const CalibrateFlags& flags) {
  if (!flags.silicon.empty()) {
    const simulator::SiliconRows silicon = simulator::read_silicon(flags.silicon, false);
    const std::string text =
        simulator::engines_json(simulator::fit_engines(silicon.rows, simulator::built_in_calibrations()));
    if (flags.out.empty()) {
      fmt::print("{}", text);
    } else {
      write_text(flags.out, text);
    }
    return kExitOk;
  }
  const std::vector<simulator::Calibration> fitted = simulator::calibrate(flags.tables);
  if (!flags.out.empty()) {
    write_text(flags.out, simulator::calibration_json(fitted));
  }
  print_tables({simulator::calibration_table(fitted)}, flags.output);
  return kExitOk;
}

SimCommand add_calibrate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("calibrate", "fits op families to timing tables, or engines to end-to-end rows");
  const auto flags = std::make_shared<CalibrateFlags>();
  auto* group = command->add_option_group("source", "what to fit to");
  group->add_option("--tables", flags->tables, "directory of timing tables (docs/simulator.md names them)");
  group->add_option("--silicon", flags->silicon, "end-to-end rows: fits the engines' constants to half of them");
  group->require_option(1);
  command->add_option("--out", flags->out, "write the constants as JSON");
  add_output(*command, flags->output);
  return {command, [flags] { return run_calibrate(*flags); }};
}

// The summary's fields stand at the top: other programs read them by name.
void print_validation(const simulator::SiliconRows& silicon,
                      const std::vector<simulator::ValidatedRow>& rows,
                      const OutputFlags& output) {
  std::vector<simulator::Table> tables = simulator::validation_tables(silicon, rows);
  if (!output.json || !output.tables.empty()) {
    print_tables(std::move(tables), output);
    return;
  }
  nlohmann::ordered_json document = simulator::table_json(tables.front());
  for (size_t i = 1; i < tables.size(); ++i) {
    document[tables[i].name] = simulator::table_json(tables[i]);
  }
  fmt::print("{}\n", document.dump(1));
}

struct ValidateFlags {
  std::string silicon;
  std::string calibration;
  bool with_suspects = false;
};

SimCommand add_validate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("validate", "holds predictions against published measurements, row by row");
  const auto flags = std::make_shared<ValidateFlags>();
  auto* silicon_file = command->add_option(
      "--silicon", flags->silicon, "end-to-end rows: CSV with the columns of e2e_tpot_b200_b300_gb200_fp8.csv");
  command->add_option(
      "--calibration", flags->calibration, "constants written by calibrate, in place of the built-in ones");
  command->add_flag("--with-suspects", flags->with_suspects, "rows whose mtp_status is suspect_on as well");
  const auto output = std::make_shared<OutputFlags>();
  add_output(*command, *output);
  const AllToAllValidation alltoall = add_alltoall_validation(*command, output);
  alltoall.option->excludes(silicon_file);
  return {command, [flags, output, alltoall] {
            if (alltoall.option->count() > 0) {
              return alltoall.run();
            }
            if (flags->silicon.empty()) {
              model::throw_input_error("validate: expected --silicon FILE or --alltoall FILE");
            }
            const simulator::SiliconRows silicon = simulator::read_silicon(flags->silicon, flags->with_suspects);
            const auto rows = simulator::validate(silicon.rows, calibrations(flags->calibration));
            print_validation(silicon, rows, *output);
            return kExitOk;
          }};
}

}  // namespace

std::vector<SimCommand> add_timing_commands(CLI::App& app) {
  return {add_estimate(app), add_explain(app), add_calibrate(app), add_validate(app)};
}

}  // namespace tools
