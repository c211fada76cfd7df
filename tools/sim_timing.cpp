#include "tools/sim_timing.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "model/atomic_file.hpp"
#include "model/check.hpp"
#include "simulator/calibrate.hpp"
#include "simulator/calibrate_records.hpp"
#include "simulator/deployment.hpp"
#include "simulator/estimate_tables.hpp"
#include "simulator/step_log.hpp"
#include "simulator/step_records.hpp"
#include "simulator/step_trace.hpp"
#include "simulator/validate.hpp"
#include "tools/cli.hpp"
#include "tools/sim_deployment.hpp"
#include "tools/sim_flags.hpp"
#include "tools/sim_moe.hpp"
#include "version.hpp"

namespace tools {
namespace {

void write_text(const std::string& path, const std::string& text) {
  model::AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

SimCommand add_estimate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("estimate", "latency, throughput and memory of one deployment");
  const auto flags = std::make_shared<DeploymentFlags>();
  add_deployment(*command, *flags);
  add_output(*command, flags->output);
  command->footer(
      "\nExample:\n"
      "  $ dsv3-sim estimate --preset h200-tp8 --table costs\n"
      "  A decode step, largest first\n"
      "    part                         time  share  floor\n"
      "                                   ms      %     ms\n"
      "    ffn: experts               10.335   48.6  8.276\n"
      "    attention: fixed            2.923   13.7      -\n"
      "    attention: cache            2.350   11.0  2.159\n"
      "    ffn: experts, fixed         1.222    5.7      -\n"
      "    communication: all-reduce   1.213    5.7  0.124\n"
      "    engine: host                1.050    4.9      -\n"
      "    engine: in the stream       0.963    4.5      -\n"
      "    attention: projections      0.690    3.2  0.466\n"
      "    ffn: router                 0.297    1.4  0.050\n"
      "    ffn: shared expert          0.083    0.4  0.067\n"
      "    head: head                  0.062    0.3  0.049\n"
      "    ffn: dense layers           0.047    0.2  0.021\n"
      "    ffn: dense layers           0.034    0.2  0.011\n");
  return {command, [flags] {
            const simulator::Deployment deployment = deployment_of(*flags);
            const auto fits = fits_of(*flags, deployment);
            simulator::MoeCurves curves = curves_of(*flags);
            const simulator::Serving serving = simulator::serve(deployment, fits, curves);
            const simulator::StepSpread spread = simulator::step_spread(deployment, fits, curves, serving);
            std::vector<simulator::Table> tables = simulator::estimate_tables(deployment, serving, spread);
            if (!deployment.workload.acceptance.empty()) {
              tables.push_back(simulator::mtp_table(deployment, fits, curves));
            }
            print_tables(std::move(tables), flags->output);
            return kExitOk;
          }};
}

SimCommand add_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "where the time of a step and of a prompt goes; leaves add up");
  struct ExplainFlags {
    DeploymentFlags deployment;
    std::string records;
  };
  const auto flags = std::make_shared<ExplainFlags>();
  add_deployment(*command, flags->deployment);
  add_output(*command, flags->deployment.output);
  command->add_option(
      "--records",
      flags->records,
      "write the decode step as op records, simulated and limit (docs/op-records.md), in place of tables");
  command->footer(
      "\nExample:\n"
      "  $ dsv3-sim explain --preset h200-tp8 --table decode_step\n"
      "  One decode step on the slowest rank\n"
      "    group          part            calls       each    total  share    floor  bytes each  FLOPs each  formula\n"
      "                                                 us       ms      %       ms          MB           G\n"
      "    attention      fixed              61      47.92   2.9231   13.7        -           -           -  layers x "
      "fixed time of the module\n"
      "    attention      projections        61      11.32   0.6905    3.2   0.4656       36.63        2.34  layers x "
      "|weights / memory, FLOPs / peak|_3\n"
      "    attention      cache              61      38.52   2.3497   11.0   2.1588      169.87        5.13  layers x "
      "|cache / memory, FLOPs / peak|_3\n"
      "    ffn            router             58       5.12   0.2971    1.4   0.0501        4.15        0.12  MoE "
      "layers x BF16 GEMM\n"
      "    ffn            experts, fixed     58      21.07   1.2221    5.7        -           -           -  MoE "
      "layers x fixed time\n"
      "    ffn            experts            58     178.19  10.3348   48.6   8.2761      684.92        2.82  MoE "
      "layers x |chosen experts of the average rank / memory, FLOPs / peak|_3\n"
      "    ffn            shared expert      58       1.44   0.0832    0.4   0.0665        5.51        0.35  MoE "
      "layers x |weights / memory, FLOPs / peak|_3\n"
      "    ffn            dense layers        3      15.62   0.0469    0.2   0.0210       33.55        2.11  dense "
      "layers x FP8 GEMMs\n"
      "    ffn            dense layers        3      11.46   0.0344    0.2   0.0107       17.05        1.06  dense "
      "layers x FP8 GEMMs\n"
      "    communication  all-reduce        122       9.94   1.2131    5.7   0.1244        0.46           -  behind "
      "attention and FFN\n"
      "    head           head                1      62.44   0.0624    0.3   0.0486      233.16        7.41  BF16 "
      "GEMM\n"
      "    engine         in the stream       1     962.86   0.9629    4.5        -           -           -  (stream "
      "factor - 1) x kernels\n"
      "    engine         host                1   1,050.00   1.0500    4.9        -           -           -  once a "
      "step\n"
      "    total                              1  21,270.03  21.2700  100.0  11.2216           -           -\n");
  return {command, [flags] {
            const simulator::Deployment deployment = deployment_of(flags->deployment);
            const auto fits = fits_of(flags->deployment, deployment);
            simulator::MoeCurves curves = curves_of(flags->deployment);
            if (!flags->records.empty()) {
              model::OpRecordFile file = simulator::step_records(deployment, fits, curves, DSV3_COMMIT);
              file.header.insert(file.header.begin(),
                                 "model=" + flags->deployment.request.model.value_or("deepseek-v3"));
              model::write_op_records(flags->records, file);
              return kExitOk;
            }
            print_tables(simulator::explain_tables(simulator::serve(deployment, fits, curves), fits),
                         flags->deployment.output);
            return kExitOk;
          }};
}

SimCommand add_trace(CLI::App& app) {
  struct TraceFlags {
    DeploymentFlags deployment;
    std::vector<int64_t> ranks{0};
    std::string out;
  };
  CLI::App* command = app.add_subcommand("trace", "the timeline of one decode step for chosen ranks, for Perfetto");
  const auto flags = std::make_shared<TraceFlags>();
  add_deployment(*command, flags->deployment);
  command->add_option("--ranks", flags->ranks, "of the EP group, or of the TP group without one")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--out", flags->out, "the file to write (Chrome's trace event format)")->required();
  command->footer(
      "\nExample (prints nothing; open the file in ui.perfetto.dev):\n"
      "  $ dsv3-sim trace --preset h100-ep72-decode --ranks 0,8 --out step.json\n");
  return {command, [flags] {
            const simulator::Deployment deployment = deployment_of(flags->deployment);
            const auto fits = fits_of(flags->deployment, deployment);
            simulator::MoeCurves curves = curves_of(flags->deployment);
            const simulator::Serving serving = simulator::serve(deployment, fits, curves);
            write_text(flags->out, simulator::step_trace(deployment, fits, curves, serving, flags->ranks).json());
            return kExitOk;
          }};
}

struct CalibrateFlags {
  std::string tables;
  std::string records;
  std::string silicon;
  std::string step_log;
  std::string out;
  DeploymentFlags deployment;  // that the step log is of
};

void run_step_log(const CalibrateFlags& flags) {
  const std::vector<simulator::LoggedStep> steps = simulator::read_step_log(flags.step_log);
  const simulator::Deployment deployment = deployment_of(flags.deployment);
  const auto fits = fits_of(flags.deployment, deployment);
  simulator::MoeCurves curves = curves_of(flags.deployment);
  const std::string origin = std::filesystem::path(flags.step_log).filename().string();
  const simulator::CorrectedEngine engine = simulator::correct_engine(deployment, fits, curves, steps, origin);
  if (!flags.out.empty()) {
    write_text(flags.out, simulator::engines_json({engine.after}));
  }
  print_tables(simulator::correction_tables(engine, steps), flags.deployment.output);
}

int run_calibrate(const CalibrateFlags& flags) {
  if (!flags.step_log.empty()) {
    run_step_log(flags);
    return kExitOk;
  }
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
  std::vector<simulator::Calibration> fitted;
  std::vector<simulator::Calibration> others;
  if (flags.records.empty()) {
    fitted = simulator::calibrate(flags.tables);
  } else {
    const simulator::Hardware hardware = simulator::load_hardware(*flags.deployment.request.gpu);
    fitted = {simulator::calibrate_records(flags.records, hardware)};
    // An estimate needs every family: what the records lack comes from the built-in constants.
    others = simulator::built_in_calibrations();
    std::erase_if(others, [&](const auto& calibration) { return calibration.gpu == hardware.name; });
  }
  if (!flags.out.empty()) {
    others.insert(others.end(), fitted.begin(), fitted.end());
    write_text(flags.out, simulator::calibration_json(others));
  }
  print_tables({simulator::calibration_table(fitted)}, flags.deployment.output);
  return kExitOk;
}

SimCommand add_calibrate(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "calibrate", "fits op families to timing tables, engines to end-to-end rows, or one engine to its own steps");
  const auto flags = std::make_shared<CalibrateFlags>();
  auto* group = command->add_option_group("source", "what to fit to");
  group->add_option("--tables", flags->tables, "directory of timing tables (docs/simulator.md names them)");
  auto* records = group->add_option(
      "--records",
      flags->records,
      "op records of linears on the GPU or file of --system, as dsv3-bench reference --out writes them");
  group->add_option("--silicon", flags->silicon, "end-to-end rows: fits the engines' constants to half of them");
  group->add_option(
      "--step-log",
      flags->step_log,
      "an engine's decode steps (CSV: sequences, context_tokens, step_ms) in the deployment that the flags "
      "below describe: corrects the engine's constants");
  group->require_option(1);
  add_deployment(*command, flags->deployment);
  records->needs(command->get_option("--system"));
  command->add_option("--out", flags->out, "write the constants as JSON: for --calibration, of an engine for --engine");
  add_output(*command, flags->deployment.output);
  command->footer(
      "\nExample:\n"
      "  $ dsv3-sim calibrate --step-log steps.csv --preset h200-tp8 --out mine.json --table correction\n"
      "  Constants of sglang: fitted to 4 steps of steps.csv\n"
      "    constant                              before      after\n"
      "    stream factor                          1.050      1.032\n"
      "    host time of a step, us            1,050.000  4,405.000\n"
      "    spread of log(predicted / logged)      0.067      0.080\n"
      "  $ dsv3-sim estimate --preset h200-tp8 --engine mine.json\n");
  return {command, [flags] { return run_calibrate(*flags); }};
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
  command->footer(
      "\nExamples:\n"
      "  $ dsv3-sim validate --silicon e2e_tpot_b200_b300_gb200_fp8.csv --table summary,by_group\n"
      "  $ dsv3-sim validate --alltoall deepep_low_latency_sweep.csv --table summary\n"
      "  Predicted against measured all-to-all times\n"
      "    rows                      454\n"
      "    median error              1.46 %\n"
      "    p90 error                 3.90 %\n"
      "    bias                      -0.06 %\n"
      "    inside the 90 % interval  97.8 %\n");
  return {command, [flags, output, alltoall] {
            if (alltoall.option->count() > 0) {
              return alltoall.run();
            }
            if (flags->silicon.empty()) {
              model::throw_input_error("validate: expected --silicon FILE or --alltoall FILE");
            }
            const simulator::SiliconRows silicon = simulator::read_silicon(flags->silicon, flags->with_suspects);
            const auto rows = simulator::validate(silicon.rows, calibrations(flags->calibration));
            print_validation(simulator::validation_tables(silicon, rows), *output);
            return kExitOk;
          }};
}

}  // namespace

std::vector<SimCommand> add_timing_commands(CLI::App& app) {
  return {add_estimate(app), add_explain(app), add_trace(app), add_calibrate(app), add_validate(app)};
}

}  // namespace tools
