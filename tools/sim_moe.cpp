#include "tools/sim_moe.hpp"

#include <fmt/core.h>

#include <memory>
#include <span>

#include "model/atomic_file.hpp"
#include "model/check.hpp"
#include "simulator/alltoall_tables.hpp"
#include "simulator/alltoall_validation.hpp"
#include "simulator/load_tables.hpp"
#include "simulator/placement_files.hpp"
#include "simulator/skew_tables.hpp"
#include "tools/cli.hpp"
#include "tools/sim_flags.hpp"

namespace tools {
namespace {

constexpr const char* kSkewHelp =
    "balanced, lognormal:SIGMA, powerlaw:ALPHA, gini:G, file:LOADS (CSV or JSON of counts), trace:ROUTING (CSV or "
    "JSON)";
constexpr const char* kBackendHelp =
    "deepep-ll, deepep-ll-dedup, deepep-normal, deepep-v2, nvlink-one-sided, nvlink-two-sided, allgather, fused";

struct CommonFlags {
  std::string model = "deepseek-v3";
  std::string gpu = "h100";
  std::string skew = "lognormal:1.05";
  std::string link = "infiniband";
  OutputFlags output;
};

void add_common(CLI::App& app, CommonFlags& flags) {
  app.add_option("--model,--model-path", flags.model, "a built-in model, or a config.json")->capture_default_str();
  app.add_option("--system,--gpu", flags.gpu, simulator::built_in_hardware_names() + ", or a hardware file")
      ->capture_default_str();
  app.add_option("--skew", flags.skew, kSkewHelp)->capture_default_str();
  app.add_option("--link", flags.link, "infiniband or roce, between NVLink domains")->capture_default_str();
  add_output(app, flags.output);
}

void write_file(const std::string& path, const std::string& text) {
  model::AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

struct SkewFlags {
  CommonFlags common;
  std::string backend = "deepep-ll";
  simulator::SkewOptions options;
  std::string write_sglang;
  std::string write_vllm;
  bool with_loads = false;
};

int run_skew(SkewFlags& flags) {
  const simulator::DescribedModel described = simulator::load_model(flags.common.model);
  simulator::SkewOptions& options = flags.options;
  options.hardware = simulator::load_hardware(flags.common.gpu);
  options.skew = simulator::parse_skew(flags.common.skew);
  options.backend = simulator::parse_backend(flags.backend);
  options.link = simulator::parse_link(flags.common.link);
  std::vector<simulator::Table> tables = simulator::skew_tables(described, options);
  if (flags.with_loads) {
    for (simulator::Table& table : simulator::load_tables(described, options)) {
      tables.push_back(std::move(table));
    }
  }
  if (!flags.write_sglang.empty() || !flags.write_vllm.empty()) {
    const auto layers = simulator::eplb_layers(described, options);
    if (!flags.write_sglang.empty()) {
      write_file(flags.write_sglang,
                 simulator::sglang_expert_location(layers, described.num_layers - described.num_moe_layers));
    }
    if (!flags.write_vllm.empty()) {
      write_file(flags.write_vllm, simulator::vllm_expert_map(layers));
    }
  }
  print_tables(std::move(tables), flags.common.output);
  return kExitOk;
}

struct AllToAllFlags {
  CommonFlags common;
  std::vector<std::string> backends{"deepep-ll"};
  simulator::AllToAllOptions options;
  bool matrix = false;
  std::string trace;
  int64_t layer = -1;
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
};

int run_matrix(const AllToAllFlags& flags, const simulator::DescribedModel& described) {
  simulator::MatrixOptions options{
      .num_ranks = flags.options.eps.front(),
      .tokens_per_rank = flags.options.tokens.front(),
      .router = simulator::router_of(described),
      .hidden_size = described.hidden_size,
      .ranks_per_node = static_cast<int64_t>(flags.options.hardware.nvlink_domain_gpus.value),
      .skew = flags.options.skew,
      .seed = flags.options.seed};
  if (flags.num_experts > 0) {
    options.router = {.num_experts = flags.num_experts, .experts_per_token = options.router.experts_per_token};
  }
  if (flags.experts_per_token > 0) {
    options.router.experts_per_token = flags.experts_per_token;
  }
  if (options.router.experts_per_token >
      options.router.num_experts / options.router.num_groups * options.router.kept_groups) {
    model::throw_input_error("--top-k {}: expected at most the {} experts of a layer",
                             options.router.experts_per_token,
                             options.router.num_experts);
  }
  if (!flags.trace.empty()) {
    const simulator::RoutingTrace trace = simulator::read_trace(flags.trace);
    options.num_experts = flags.num_experts > 0 ? flags.num_experts : described.num_experts;
    for (const simulator::TraceLayer& layer : trace.layers) {
      if (!options.trace && (flags.layer < 0 || layer.layer_id == flags.layer)) {
        options.trace = layer;
      }
    }
    if (!options.trace) {
      model::throw_input_error("{}: no layer {} in the trace", flags.trace, flags.layer);
    }
  }
  print_tables(simulator::dispatch_matrix_tables(options), flags.common.output);
  return kExitOk;
}

int run_alltoall(AllToAllFlags& flags) {
  const simulator::DescribedModel described = simulator::load_model(flags.common.model);
  simulator::AllToAllOptions& options = flags.options;
  options.hardware = simulator::load_hardware(flags.common.gpu);
  options.skew = simulator::parse_skew(flags.common.skew);
  options.link = simulator::parse_link(flags.common.link);
  options.backends.clear();
  for (const std::string& name : flags.backends) {
    options.backends.push_back(simulator::parse_backend(name));
  }
  if (flags.matrix || !flags.trace.empty()) {
    return run_matrix(flags, described);
  }
  print_tables(simulator::alltoall_tables(described, options), flags.common.output);
  return kExitOk;
}

}  // namespace

std::function<int()> add_skew(CLI::App& app) {
  const auto flags = std::make_shared<SkewFlags>();
  auto& options = flags->options;
  add_common(app, flags->common);
  app.add_option("--ep", options.eps, "expert-parallel sizes")->delimiter(',')->capture_default_str();
  app.add_option("--batch,--tokens", options.batches, "tokens of a rank")->delimiter(',')->capture_default_str();
  app.add_option("--backend", flags->backend, kBackendHelp)->capture_default_str();
  app.add_option("--kernel", options.kernel, "sglang-decode, sglang-prefill, trtllm-fp8 or trtllm-nvfp4")
      ->capture_default_str();
  app.add_option("--redundant-experts,--ep-num-redundant-experts,--num-redundant-experts",
                 options.num_redundant,
                 "slots beyond the experts, in all rows (default: 32 or a few more, for EPLB alone)");
  app.add_flag("--pad", options.is_padded, "leave slots empty where the experts do not divide over the ranks");
  app.add_option("--steps", options.num_steps, "decode steps to sample")->capture_default_str();
  add_seed(app, options.seed, "of all random numbers");
  app.add_option(
         "--layer-correlation", options.layer_correlation, "of a layer's hot experts with those of the layer before")
      ->capture_default_str();
  app.add_option("--stale", options.stale_correlation, "correlation of the load that EPLB saw with the one that comes")
      ->capture_default_str();
  app.add_option("--rebalance", options.rebalance_steps, "compare these intervals (steps) between rebalancings")
      ->delimiter(',');
  app.add_option("--drift-steps", options.drift_steps, "steps in which a load's correlation with itself falls to 1/e")
      ->capture_default_str();
  app.add_option("--bias-gamma", options.gammas, "what if the router's bias were steered by so much a step")
      ->delimiter(',');
  app.add_flag("--local-search",
               options.with_local_search,
               "a row more: the best placement that swapping slots finds, a bound for EPLB");
  app.add_option("--dynamic",
                 options.num_hosted,
                 "a row more: ranks host so many experts, and each step chooses which of them compute (V3 report: 16, "
                 "of which 9)")
      ->check(CLI::PositiveNumber);
  app.add_flag("--loads",
               flags->with_loads,
               "also the mean load of every expert, and of every rank of the first EP size, by layer");
  app.add_option("--write-sglang", flags->write_sglang, "write EPLB's placement for --init-expert-location");
  app.add_option(
      "--write-vllm", flags->write_vllm, "write EPLB's placement as an expert map (vLLM Ascend's expert_map_path)");
  app.footer(
      "\nExample:\n"
      "  $ dsv3-sim skew --ep 32 --batch 64 --steps 10\n"
      "  Unequal experts: lognormal:1.05, NVIDIA H100 SXM 80 GB, deepep-ll, all MoE layers, 10 steps\n"
      "    EP    tokens  placement       slots  redundant  rank max/mean  rank max/mean  slot max/mean  MoE step  MoE "
      "step  MoE step  dispatch  experts  combine  waiting  more than balanced  redundant weights\n"
      "        per rank               per rank      slots            p50            p99            p50    ms p50    ms "
      "p90    ms p99        ms       ms       ms       ms              ms p50            GB/rank\n"
      "    32        64  balanced            8          0           1.09           1.15           1.34    24.117    "
      "24.143    24.152     4.949    9.559    8.490    1.121               0.000               0.00\n"
      "    32        64  in order            8          0           2.33           4.55           9.77    39.714    "
      "39.804    39.820     5.510    9.678    9.612   14.908              15.597               0.00\n"
      "    32        64  EPLB                9         32           1.12           1.32           3.06    25.359    "
      "25.398    25.403     5.001   10.566    8.595    1.199               1.241               2.55\n"
      "    32        64  EPLB global         9         32           1.08           1.15           2.83    24.792    "
      "24.812    24.821     4.944   10.567    8.480    0.802               0.675               2.55\n");
  return [flags] { return run_skew(*flags); };
}

std::function<int()> add_alltoall(CLI::App& app) {
  const auto flags = std::make_shared<AllToAllFlags>();
  auto& options = flags->options;
  add_common(app, flags->common);
  app.add_option("--ep", options.eps, "expert-parallel sizes")->delimiter(',')->capture_default_str();
  app.add_option("--tokens,--batch", options.tokens, "tokens of a rank")->delimiter(',')->capture_default_str();
  app.add_option("--backend", flags->backends, kBackendHelp)->delimiter(',')->capture_default_str();
  app.add_option("--samples", options.num_samples, "of the unequal loads")->capture_default_str();
  add_seed(app, options.seed, "of all random numbers");
  app.add_flag(
      "--matrix", flags->matrix, "instead, who sends how much to whom, token by token (first --ep, first --tokens)");
  app.add_option("--experts", flags->num_experts, "with --matrix: experts of a layer, without groups");
  app.add_option("--top-k", flags->experts_per_token, "with --matrix: experts of a token");
  auto* trace = app.add_option("--trace", flags->trace, "the matrix of a routing trace (CSV or JSON)");
  app.add_option("--layer", flags->layer, "of the trace (default: its first)")->needs(trace);
  app.footer(
      "\nExample:\n"
      "  $ dsv3-sim alltoall --matrix --ep 4 --tokens 2 --experts 8 --top-k 2 --table matrix\n"
      "  Copies from rank (row) to rank (column); the diagonal stays\n"
      "    from  to 0  to 1  to 2  to 3\n"
      "       0     1     1     2     0\n"
      "       1     0     1     2     1\n"
      "       2     0     1     2     1\n"
      "       3     1     1     2     0\n");
  return [flags] { return run_alltoall(*flags); };
}

AllToAllValidation add_alltoall_validation(CLI::App& app, std::shared_ptr<const OutputFlags> output) {
  struct Flags {
    std::string file;
    std::string backend = "deepep-ll";
    std::string link = "infiniband";
  };
  const auto flags = std::make_shared<Flags>();
  AllToAllValidation validation;
  validation.option =
      app.add_option("--alltoall", flags->file, "measured dispatch and combine times (columns: docs/skew.md)");
  app.add_option("--backend", flags->backend, kBackendHelp)->capture_default_str()->needs(validation.option);
  app.add_option("--link", flags->link, "infiniband or roce")->capture_default_str()->needs(validation.option);
  validation.run = [flags, output = std::move(output)] {
    const auto rows = simulator::read_all_to_all_rows(flags->file);
    print_validation(simulator::validate_all_to_all(
                         rows, simulator::parse_backend(flags->backend), simulator::parse_link(flags->link)),
                     *output);
    return kExitOk;
  };
  return validation;
}

}  // namespace tools
