#include "simulator/calibration_sources.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "model/check.hpp"
#include "simulator/op_work.hpp"

namespace simulator {
namespace {

using Config = model::ModelConfig;

double real(int64_t value) {
  return static_cast<double>(value);
}

OpWork gemm_fp8(const RowAxes& row, const Config&) {
  return gemm_work({row.at("m"), row.at("n"), row.at("k")}, 1);
}

OpWork gemm_bf16(const RowAxes& row, const Config&) {
  return gemm_work({row.at("m"), row.at("n"), row.at("k")}, 2);
}

// Uniform routing of the tables: the copies go round robin over the experts.
double expert_rows(const RowAxes& row) {
  return row.at("tokens_global") * row.at("topk") / row.at("ep_size");
}

double active_experts(const RowAxes& row) {
  return std::min(expert_rows(row), row.at("num_experts") / row.at("ep_size"));
}

OpWork experts(const RowAxes& row, const Config& config) {
  return experts_work(config, active_experts(row), expert_rows(row), 1);
}

OpWork attention(const RowAxes& row, const Config& config, int cache_bytes_each) {
  return attention_work(config,
                        {.heads = row.at("heads"),
                         .sequences = row.at("sequences"),
                         .kv_len = row.at("kv_len"),
                         .cache_bytes_each = cache_bytes_each});
}

OpWork all_reduce(const RowAxes& row, const Config&) {
  return {.message_bytes = row.at("message_bytes"), .num_ranks = static_cast<int64_t>(row.at("num_gpus"))};
}

// Copies of uniform routing: 1 - 1/domains of them cross to another domain, the rest go to the other ranks of the domain.
OpWork all_to_all(const RowAxes& row, double bytes_of_copy) {
  const double ep = row.at("ep_size");
  const double domains = row.at("num_nodes");
  const double bytes = row.at("tokens_per_rank") * row.at("topk") * bytes_of_copy;
  return {.nvlink_bytes = bytes * (1 / domains - 1 / ep),
          .network_bytes = bytes * (1 - 1 / domains),
          .num_domains = static_cast<int64_t>(domains)};
}

OpWork dispatch(const RowAxes& row, const Config& config) {
  constexpr double kScaleBytesPerValue = 4.0 / 128;
  return all_to_all(row, real(config.hidden_size) * (1 + kScaleBytesPerValue));
}

OpWork combine(const RowAxes& row, const Config& config) {
  return all_to_all(row, 2 * real(config.hidden_size));
}

OpWork attention_bf16(const RowAxes& row, const Config& config) {
  return attention(row, config, 2);
}

OpWork attention_fp8(const RowAxes& row, const Config& config) {
  return attention(row, config, 1);
}

OpWork prefill_scores(const RowAxes& row, const Config& config) {
  return prefill_scores_work(config, real(config.num_attention_heads), 0, row.at("kv_len"));
}

OpAxes axes_of(OpFamily family, const RowAxes& row) {
  switch (family) {
    case OpFamily::kGemmFp8:
    case OpFamily::kGemmBf16: return {row.at("n"), row.at("k"), row.at("m")};
    case OpFamily::kExperts: return {active_experts(row), expert_rows(row)};
    case OpFamily::kAttentionBf16:
    case OpFamily::kAttentionFp8: return {row.at("heads"), row.at("kv_len"), row.at("sequences")};
    case OpFamily::kAllReduce: return {row.at("num_gpus"), row.at("message_bytes")};
    case OpFamily::kPrefillScores: return {row.at("kv_len")};
    case OpFamily::kDispatch:
    case OpFamily::kCombine: return {};
  }
  CHECK(false);
}

constexpr const char* kAic = "ai-dynamo/aiconfigurator@095f58a";

std::vector<CalibrationSource> make_sources() {
  const std::vector<double> roofline{10, 0.7, 0.5};
  const auto aic = [](const std::string& what) { return what + ", " + kAic; };
  return {
      {"gemm_dense.csv",
       OpFamily::kGemmFp8,
       {{"dtype", "fp8_block"}},
       "latency",
       roofline,
       gemm_fp8,
       aic("sglang 0.5.14 DeepGEMM")},
      {"infersim_gemm_h800_h20.csv",
       OpFamily::kGemmFp8,
       {{"kernel", "FP8 DeepGEMM"}},
       "latency",
       roofline,
       gemm_fp8,
       "DeepGEMM, alibaba/InferSim@f2293da"},
      {"gemm_dense.csv",
       OpFamily::kGemmBf16,
       {{"dtype", "bfloat16"}},
       "latency",
       roofline,
       gemm_bf16,
       aic("sglang 0.5.14 torch")},
      {"wideep_moe_compute_skew.csv",
       OpFamily::kExperts,
       {{"phase", "generation"}, {"routing_distribution", "uniform"}, {"dtype", "fp8_block"}},
       "latency",
       roofline,
       experts,
       aic("sglang 0.5.10 wide-EP generation, uniform routing")},
      {"mla_decode_module.csv",
       OpFamily::kAttentionBf16,
       {{"gemm_dtype", "fp8_block"}, {"kv_dtype", "bfloat16"}},
       "latency",
       {40, 0.6, 0.8, 0.6, 0.25},
       attention_bf16,
       aic("trtllm 1.3.0rc20 MLA module")},
      {"mla_decode_module.csv",
       OpFamily::kAttentionFp8,
       {{"gemm_dtype", "fp8_block"}, {"kv_dtype", "fp8"}},
       "latency",
       {40, 0.6, 0.8, 0.6, 0.25},
       attention_fp8,
       aic("trtllm 1.3.0rc20 MLA module")},
      {"infersim_mla_h800_h20.csv",
       OpFamily::kPrefillScores,
       {{"phase", "prefill"}},
       "latency",
       {20, 0.6},
       prefill_scores,
       "alibaba/InferSim@f2293da, 128 heads in expanded form"},
      {"custom_allreduce_intranode.csv",
       OpFamily::kAllReduce,
       {{"implementation", "SGLang_CustomAllReduce_graph"}},
       "latency",
       {4, 0.6, 6, 0.7},
       all_reduce,
       aic("sglang custom all-reduce in a graph")},
      {"deepep_low_latency_sweep.csv",
       OpFamily::kDispatch,
       {},
       "dispatch",
       {15, 4.5, 0.6, 0.95},
       dispatch,
       aic("DeepEP low latency as in sglang 0.5.6")},
      {"deepep_low_latency_sweep.csv",
       OpFamily::kCombine,
       {},
       "combine",
       {12, 4.5, 0.6, 0.95},
       combine,
       aic("DeepEP low latency as in sglang 0.5.6")},
  };
}

constexpr auto kGpus = std::to_array<std::pair<std::string_view, std::string_view>>({{"GB200", "gb200-nvl72"},
                                                                                     {"A100", "a100"},
                                                                                     {"B200", "b200"},
                                                                                     {"B300", "b300"},
                                                                                     {"H100", "h100"},
                                                                                     {"H200", "h200"},
                                                                                     {"H20", "h20"},
                                                                                     {"H800", "h800"}});

size_t index_of(const std::vector<std::string>& names, const std::string& name, const TimingTable& table) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    model::throw_input_error("{}: expected a column {} for calibration", table.path, name);
  }
  return static_cast<size_t>(found - names.begin());
}

bool has_labels(const CalibrationSource& source, const TimingTable& table, const TimingRow& row) {
  return std::ranges::all_of(source.labels, [&](const auto& label) {
    return row.labels[index_of(table.label_names, label.first, table)] == label.second;
  });
}

}  // namespace

std::string hardware_name(const std::string& label) {
  const auto found =
      std::ranges::find_if(kGpus, [&](const auto& gpu) { return label.find(gpu.first) != std::string::npos; });
  return found == kGpus.end() ? std::string() : std::string(found->second);
}

std::span<const CalibrationSource> calibration_sources() {
  static const std::vector<CalibrationSource> kSources = make_sources();
  return kSources;
}

std::vector<MeasuredRow> measured_rows(const CalibrationSource& source,
                                       const TimingTable& table,
                                       const Config& config) {
  const size_t gpu_column = index_of(table.label_names, "gpu", table);
  const size_t time_column = index_of(table.time_names, source.time_name, table);
  std::vector<MeasuredRow> rows;
  for (const TimingRow& row : table.rows) {
    const std::string gpu = hardware_name(row.labels[gpu_column]);
    if (gpu.empty() || !row.times_us[time_column] || !has_labels(source, table, row)) {
      continue;
    }
    RowAxes axes;
    for (size_t i = 0; i < row.axes.size(); ++i) {
      axes[table.axis_names[i]] = row.axes[i];
    }
    rows.push_back({.gpu = gpu,
                    .op = {source.work(axes, config), *row.times_us[time_column]},
                    .axes = axes_of(source.family, axes),
                    .line = row.line});
  }
  return rows;
}

}  // namespace simulator
