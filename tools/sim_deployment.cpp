#include "tools/sim_deployment.hpp"

#include <utility>

#include "model/check.hpp"
#include "simulator/op_tables.hpp"
#include "tools/cli.hpp"

namespace tools {

std::vector<simulator::Calibration> calibrations(const std::string& path) {
  return path.empty() ? simulator::built_in_calibrations() : simulator::read_calibrations(path);
}

// Where a preset and a flag speak of the same thing, the flag wins: presets only fill what was not given.
simulator::DeploymentRequest request_of(const DeploymentFlags& flags) {
  simulator::DeploymentRequest request = flags.request;
  request.layout = flags.layout.shorthand.empty()
                       ? flags.layout.request
                       : simulator::merged(flags.layout.request, simulator::parse_shorthand(flags.layout.shorthand));
  if (!flags.prefill_layout.shorthand.empty()) {
    request.prefill_layout = simulator::parse_shorthand(flags.prefill_layout.shorthand);
  }
  if (!flags.all_to_all.empty()) {
    request.all_to_all = simulator::parse_backend(flags.all_to_all);
  }
  return request;
}

simulator::Deployment deployment_of(const DeploymentFlags& flags) {
  simulator::Deployment deployment = simulator::build_deployment(request_of(flags));
  deployment.hardware = simulator::changed(deployment.hardware, changes_of(flags));
  return deployment;
}

simulator::HardwareChanges changes_of(const DeploymentFlags& flags) {
  simulator::HardwareChanges changes = flags.changes;
  changes.comm_sms = simulator::with_preset(flags.request).comm_sms;
  changes.wide_fp8_accumulation = flags.fp8_accumulation == "34bit";
  return changes;
}

simulator::MoeCurves curves_of(const DeploymentFlags& flags) {
  for (const auto& [flag, value] :
       {std::pair{"--layer-correlation", flags.layer_correlation}, {"--stale", flags.stale_correlation}}) {
    if (!(value >= 0 && value <= 1)) {
      model::throw_input_error("{} {}: expected 0 to 1", flag, value);
    }
  }
  return simulator::MoeCurves(
      {.skew = simulator::parse_skew(simulator::with_preset(flags.request).skew.value_or("lognormal:1.05")),
       .layer_correlation = flags.layer_correlation,
       .seen_correlation = flags.stale_correlation,
       .link = simulator::parse_link(flags.link),
       .seed = flags.seed});
}

std::vector<simulator::ChosenFit> fits_of(const DeploymentFlags& flags, const simulator::Deployment& deployment) {
  // Constants and rows are of the GPU as it is, whatever --hbm and its like ask.
  const simulator::Hardware as_built = simulator::build_deployment(request_of(flags)).hardware;
  std::vector<simulator::ChosenFit> fits = simulator::choose_fits(calibrations(flags.calibration), as_built);
  if (!flags.timing_tables.empty()) {
    fits = simulator::with_tables(std::move(fits),
                                  simulator::load_op_tables(flags.timing_tables, as_built, deployment.config));
  }
  return simulator::changed(std::move(fits), as_built, changes_of(flags));
}

void add_workload(CLI::App& command, DeploymentFlags& flags) {
  auto& request = flags.request;
  command.add_option("--preset", request.preset, "a published deployment: " + simulator::preset_names());
  command.add_option("--model,--model-path", request.model, "deepseek-v3, kimi-k2, or a config.json");
  command.add_option("--system,--gpu", request.gpu, simulator::built_in_hardware_names() + ", or a hardware file");
  command.add_option(
      "--engine,--backend", request.engine, simulator::engine_names() + ", or a file that calibrate wrote");
  auto* isl = command.add_option("--isl", request.prompt_tokens, "prompt tokens, mean");
  auto* osl = command.add_option("--osl", request.answer_tokens, "answer tokens, mean");
  auto* isl_cv = command.add_option(
      "--isl-cv", request.prompt_cv, "standard deviation of prompt lengths over their mean (log-normal)");
  auto* osl_cv = command.add_option("--osl-cv", request.answer_cv, "the same of answers");
  command
      .add_option("--lengths",
                  request.lengths,
                  "a CSV of requests (prompt_tokens, answer_tokens), in place of means and variations")
      ->excludes(isl)
      ->excludes(osl)
      ->excludes(isl_cv)
      ->excludes(osl_cv);
  command.add_option("--prefix-hit", request.prefix_hit, "share of a prompt's tokens that the cache already has");
  command.add_option("--prefill-chunk,--chunked-prefill-size,--max-num-batched-tokens",
                     request.prefill_chunk,
                     "tokens of a DP rank that are prefilled at once between decode steps (default: a whole prompt)");
  command.add_option("--steps-per-chunk", request.steps_per_chunk, "decode steps between two such chunks")
      ->capture_default_str();
  command.add_flag("--prefill-in-turn",
                   request.prefill_in_turn,
                   "DP ranks of a worker prefill one after another and the others wait (default: all at once)");
  command.add_option("--kv-dtype,--kv-cache-dtype", request.kv_dtype, "bf16 (what engines do by default) or fp8")
      ->check(CLI::IsMember({"bf16", "fp8"}));
  command
      .add_option("--mtp-acceptance", request.acceptance, "chance of each draft given the ones before: sets the depth")
      ->delimiter(',');
  command.add_option("--redundant-experts,--ep-num-redundant-experts,--num-redundant-experts",
                     request.redundant_experts,
                     "slots beyond the experts of a layer");
  command.add_flag("--eplb,--enable-eplb", request.eplb, "experts placed by load");
  command
      .add_option("--stale", flags.stale_correlation, "correlation of the load that EPLB saw with the one that comes")
      ->capture_default_str();
  command
      .add_option(
          "--layer-correlation", flags.layer_correlation, "of a layer's hot experts with those of the layer before")
      ->capture_default_str();
  add_seed(command, flags.seed, "of all random numbers");
  command.add_option(
      "--shared-expert",
      request.shared_expert,
      "replicated (whole on every rank), sharded (over tp) or routed (as a routed expert that every token "
      "chooses); default: replicated with experts over DP ranks, else sharded");
  command.add_option(
      "--dense-tp,--moe-dense-tp-size", request.dense_tp, "ranks that share the FFN of a dense layer (default: tp)");
  command.add_option("--skew",
                     request.skew,
                     "how unequally experts are chosen: balanced, lognormal:SIGMA, powerlaw:ALPHA, gini:G, file:LOADS, "
                     "trace:ROUTING (default: the preset's, else lognormal:1.05)");
  command.add_option("--all-to-all,--moe-a2a-backend",
                     flags.all_to_all,
                     "of decode: deepep-ll, deepep-ll-dedup, deepep-normal, deepep-v2, nvlink-one-sided, "
                     "nvlink-two-sided, allgather, fused (default: the engine's)");
  command.add_option("--link", flags.link, "infiniband or roce, between NVLink domains")->capture_default_str();
  command.add_flag(
      "--two-batch-overlap,--enable-two-batch-overlap", request.two_batch_overlap, "halves hide all-to-all");
  command.add_flag("--no-cuda-graph,--disable-cuda-graph", request.no_cuda_graph, "launch every kernel");
  command.add_flag("--early-engine", request.early_engine, "an engine release of 2025");
  command.add_flag("--decode-only", request.decode_only, "prefill happens elsewhere and keeps up");
  command.add_option("--memory-frac,--mem-fraction-static,--gpu-memory-utilization",
                     request.memory_frac,
                     "of a GPU's memory that may be used");
  command.add_option(
      "--calibration", flags.calibration, "constants written by calibrate, in place of the built-in ones");
  auto& changes = flags.changes;
  const char* group = "What if";
  command.add_option("--hbm", changes.memory_rate, "memory: x1.4, or GB/s")->group(group);
  command.add_option("--nvlink", changes.nvlink, "NVLink: x2, or GB/s of one direction")->group(group);
  command.add_option("--nvlink-domain", changes.nvlink_domain, "GPUs that reach one another over NVLink")->group(group);
  command.add_option("--nic", changes.nic, "network of a GPU: x2, GB/s, or 800G for Gb/s")->group(group);
  command.add_option("--peak", changes.peak, "tensor cores: x1.5, or dense FP8 TFLOPS")->group(group);
  command
      .add_option("--comm-sms",
                  request.comm_sms,
                  "SMs that communication keeps from computing (20 in the V3 report; 0: a communication co-processor)")
      ->group(group);
  command
      .add_option(
          "--fp8-accumulation",
          flags.fp8_accumulation,
          "34bit: no promotion of FP8 products to FP32 (14bit is what Hopper does); an upper bound on what it saves")
      ->check(CLI::IsMember({"14bit", "34bit"}))
      ->group(group);
  command.add_option("--sms", changes.sms, "SMs of the GPU")->capture_default_str()->group(group);
}

void add_deployment(CLI::App& command, DeploymentFlags& flags) {
  auto& request = flags.request;
  add_workload(command, flags);
  auto* batch = command.add_option("--bs,--batch-size", request.batch, "sequences of a DP rank that should decode");
  command.add_option("--concurrency", request.concurrency, "requests in the system, all GPUs")->excludes(batch);
  command.add_option("--workers", request.workers, "decode workers, each of the layout");
  command.add_option("--prefill-layout", flags.prefill_layout.shorthand, "prefill on GPUs of its own, shorthand");
  command.add_option("--prefill-workers", request.prefill_workers, "prefill workers");
  command.add_option(
      "--timing-tables",
      flags.timing_tables,
      "directory of timing tables: where one has rows of this GPU they answer in place of the constants");
  add_layout(command, flags.layout);
}

}  // namespace tools
