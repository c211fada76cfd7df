#include "simulator/cost_tables.hpp"

#include <algorithm>
#include <cmath>

#include "model/check.hpp"
#include "simulator/accounting.hpp"
#include "simulator/traffic_tables.hpp"

namespace simulator {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kMillion = 1e6;
constexpr double kBillion = 1e9;  // also GB
constexpr int64_t kMaxListed = 1 << 20;

void check_list(const std::vector<int64_t>& values, const char* what) {
  for (const int64_t value : values) {
    if (value < 1 || value > kMaxListed) {
      model::throw_input_error("{} {}: expected 1 to {}", what, value, kMaxListed);
    }
  }
}

void check_options(const DescribedModel& described, const CostOptions& options) {
  check_list(options.batches, "batch");
  check_list(options.eps, "ep");
  check_list(options.contexts, "context");
  check_list({options.gpus_per_node}, "GPUs of a node");
  for (const double rate : {options.ib_gb_per_s, options.nvlink_gb_per_s}) {
    if (!(rate > 0) || !std::isfinite(rate)) {
      model::throw_input_error("link rate {} GB/s: expected a number above 0", rate);
    }
  }
  if (!options.load.empty() && static_cast<int64_t>(options.load.size()) != described.num_experts) {
    model::throw_input_error("load: {} counts, but a layer of {} has {} routed experts: expected one count for each",
                             options.load.size(),
                             described.name,
                             described.num_experts);
  }
}

// In JSON and CSV only: the text has room for the weights.
Column bytes_column(const char* key) {
  return {.key = key, .heading = key, .is_hidden = true};
}

Table model_table(const DescribedModel& described, const WeightTotals& totals) {
  const auto weights = [](const char* key, const char* heading) {
    return Column{.key = key, .heading = heading, .unit = "B", .divisor = kBillion, .decimals = 2};
  };
  Table table{.name = "model",
              .title = described.name,
              .columns = {{"model", "model"},
                          {"attention", "attention"},
                          {"num_layers", "layers"},
                          {"num_moe_layers", "of them with experts"},
                          {"num_experts", "routed experts of a layer"},
                          {"experts_per_token", "chosen for a token"},
                          weights("total_weights", "parameters"),
                          weights("mtp_weights", "MTP parameters beside them"),
                          weights("active_weights", "active for a token, both tables counted"),
                          weights("active_weights_without_embedding", "active, without the embedding table"),
                          weights("active_weights_without_tables", "active, without either table"),
                          weights("always_read_weights", "read in every step (no experts, no embedding table)"),
                          {"expert_weights", "one routed expert", "M", kMillion, 2},
                          {"attention_weights_per_layer", "attention of a layer", "M", kMillion, 1},
                          {"routed_frac", "share of the routed experts", "%", 0.01, 1},
                          bytes_column("total_fp8_bytes"),
                          bytes_column("total_bf16_bytes"),
                          bytes_column("active_fp8_bytes"),
                          bytes_column("active_bf16_bytes"),
                          bytes_column("always_read_fp8_bytes"),
                          bytes_column("always_read_bf16_bytes"),
                          {"kv_bytes_per_token", "KV cache of a token, BF16", "B"},
                          {"kv_bytes_per_token_mha", "the same heads without sharing (MHA)", "B"}},
              .is_record = true};
  table.add({described.name,
             described.attention,
             described.num_layers,
             described.num_moe_layers,
             described.num_experts,
             described.experts_per_token,
             totals.all.weights,
             totals.num_mtp,
             totals.active.weights,
             totals.num_active_without_embedding,
             totals.num_active_without_tables,
             totals.always.weights,
             described.num_experts > 0 ? Cell(totals.expert.weights) : Cell(),
             totals.attention_weights_per_layer,
             totals.routed_frac(),
             totals.all.fp8_bytes,
             totals.all.bf16_bytes,
             totals.active.fp8_bytes,
             totals.active.bf16_bytes,
             totals.always.fp8_bytes,
             totals.always.bf16_bytes,
             2 * described.kv_values_per_token,
             2 * described.kv_values_per_token_mha});
  return table;
}

Table component_table(const DescribedModel& described) {
  Table table{.name = "components",
              .title = "Parameters and bytes by component (active: what one token uses; always: read by any batch)",
              .columns = {{"component", "component"},
                          {"weights", "parameters"},
                          {"active_weights", "active"},
                          {"always_read_weights", "always"},
                          {"fp8_bytes", "FP8", "GB", kBillion, 3},
                          {"bf16_bytes", "BF16", "GB", kBillion, 3},
                          bytes_column("active_fp8_bytes"),
                          bytes_column("active_bf16_bytes"),
                          bytes_column("always_read_fp8_bytes"),
                          bytes_column("always_read_bf16_bytes")}};
  for (const ComponentCount& count : count_components(described)) {
    table.add({std::string(component_name(count.component)),
               count.all.weights,
               count.active.weights,
               count.always.weights,
               count.all.fp8_bytes,
               count.all.bf16_bytes,
               count.active.fp8_bytes,
               count.active.bf16_bytes,
               count.always.fp8_bytes,
               count.always.bf16_bytes});
  }
  return table;
}

Table batch_table(const DescribedModel& described, const WeightTotals& totals, const std::vector<int64_t>& batches) {
  Table table{.name = "batch",
              .title = "Read in one step by a batch, routing uniform, both tables counted",
              .columns = {{"tokens", "tokens"},
                          {"active_experts", "active experts", "of a layer", 1, 1},
                          {"rows_per_expert", "rows per expert", "Tk/E", 1, 2},
                          {"rows_per_active_expert", "per active one", "rows", 1, 2},
                          {"read_weights", "parameters", "B", kBillion, 1},
                          {"read_expert_weights", "of experts", "B", kBillion, 1},
                          {"read_fp8_bytes", "FP8", "GB", kBillion, 1},
                          {"read_bf16_bytes", "BF16", "GB", kBillion, 1},
                          bytes_column("read_expert_fp8_bytes"),
                          bytes_column("read_expert_bf16_bytes")}};
  for (const int64_t batch : batches) {
    const StepRead read = step_read(described, totals, batch);
    const auto rows = static_cast<double>(batch * described.experts_per_token);
    const bool has_experts = described.num_experts > 0;
    table.add({batch,
               has_experts ? Cell(read.num_active_experts) : Cell(),
               has_experts ? Cell(rows / static_cast<double>(described.num_experts)) : Cell(),
               has_experts ? Cell(rows / read.num_active_experts) : Cell(),
               read.num_weights,
               read.expert_weights,
               read.fp8_bytes,
               read.bf16_bytes,
               read.expert_fp8_bytes,
               read.expert_bf16_bytes});
  }
  return table;
}

Table context_table(const DescribedModel& described, const std::vector<int64_t>& contexts) {
  Table table{.name = "context",
              .title = "One sequence by context: KV cache, and FLOPs of a token (multiply and add are 2)",
              .columns = {{"context_tokens", "context", "tokens"},
                          {"kv_bf16_bytes", "KV BF16", "GiB", kGiB, 3},
                          {"kv_fp8_bytes", "KV FP8", "GiB", kGiB, 3},
                          {"kv_mha_bf16_bytes", "as MHA BF16", "GiB", kGiB, 3},
                          {"decode_weight_flops", "decode: weights", "GFLOP", kBillion, 2},
                          {"decode_attention_flops", "cache", "GFLOP", kBillion, 2},
                          {"decode_flops", "total", "GFLOP/token", kBillion, 2},
                          {"prefill_flops", "prefill average", "GFLOP/token", kBillion, 2}}};
  for (const int64_t context : contexts) {
    const TokenFlops decode = decode_flops(described, context);
    table.add({context,
               2 * context * described.kv_values_per_token,
               context * described.kv_values_per_token,
               2 * context * described.kv_values_per_token_mha,
               decode.weights,
               decode.attention,
               decode.total(),
               prefill_flops(described, context).total()});
  }
  return table;
}

Table gpu_table(const DescribedModel& described, const WeightTotals& totals, const std::vector<int64_t>& eps) {
  const auto left = [](const char* key, const char* heading) {
    return Column{.key = key, .heading = heading, .unit = "GB", .divisor = kBillion, .decimals = 1};
  };
  Table table{
      .name = "gpu_weights",
      .title =
          "Weights of the fullest GPU, experts spread over EP and the rest whole on each; what FP8 leaves of a card\n"
          "(simple: 1 byte a weight, and the rest in whole GB; negative: does not fit)",
      .columns = {{"ep", "EP"},
                  {"experts_per_gpu", "experts/layer", "of a GPU"},
                  {"simple_gb", "simple", "GB", 1, 1},
                  {"fp8_bytes", "FP8", "GB", kBillion, 1},
                  {"bf16_bytes", "BF16", "GB", kBillion, 1},
                  left("left_of_80_gb_bytes", "left of 80"),
                  left("left_of_141_gb_bytes", "left of 141"),
                  left("left_of_180_gb_bytes", "left of 180")}};
  for (const int64_t ep : described.num_experts > 0 ? eps : std::vector<int64_t>{1}) {
    const GpuWeights weights = gpu_weights(described, totals, ep);
    constexpr auto kGb = static_cast<int64_t>(kBillion);
    table.add({ep,
               weights.experts_per_gpu,
               weights.simple_gb,
               weights.fp8_bytes,
               weights.bf16_bytes,
               80 * kGb - weights.fp8_bytes,
               141 * kGb - weights.fp8_bytes,
               180 * kGb - weights.fp8_bytes});
  }
  return table;
}

Table reported_table(const std::vector<ReportedDeployment>& deployments) {
  Table table{.name = "reported",
              .title = "The same in the deployment of the DeepSeek-V3 report (attention TP4, redundant experts)",
              .columns = {{"phase", "phase"},
                          {"ep", "EP"},
                          {"attention_tp", "attention TP"},
                          {"experts_per_gpu", "experts/layer", "of a GPU"},
                          {"shared_expert", "shared expert"},
                          {"fp8_bytes", "FP8", "GB", kBillion, 1}}};
  for (const ReportedDeployment& deployment : deployments) {
    table.add({std::string(deployment.name),
               deployment.ep,
               deployment.attention_tp,
               deployment.experts_per_gpu,
               std::string(deployment.has_shared_expert ? "on each GPU" : "on GPUs of its own"),
               deployment.fp8_bytes});
  }
  return table;
}

}  // namespace

std::vector<Table> cost_tables(const DescribedModel& described, const CostOptions& options) {
  check_options(described, options);
  const WeightTotals totals = weight_totals(described);
  std::vector<Table> tables{model_table(described, totals),
                            component_table(described),
                            batch_table(described, totals, options.batches),
                            context_table(described, options.contexts),
                            gpu_table(described, totals, options.eps)};
  if (const auto deployments = reported_deployments(described, totals); !deployments.empty()) {
    tables.push_back(reported_table(deployments));
  }
  if (described.num_experts > 0) {
    tables.push_back(alltoall_table(described, options));
    tables.push_back(copies_table(described, options));
  }
  tables.push_back(allreduce_table(described));
  if (!options.load.empty()) {
    tables.push_back(capacity_table(options));
  }
  return tables;
}

}  // namespace simulator
