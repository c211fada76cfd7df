#include "simulator/deployment.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "model/json_fields.hpp"
#include "model/printable.hpp"
#include "model/strict_json.hpp"
#include "simulator/data_files.hpp"
#include "simulator/described_model.hpp"

namespace simulator {
namespace {

constexpr size_t kMaxDepth = 8;
constexpr double kMostTokens = 1 << 20;

const nlohmann::json& presets() {
  static const nlohmann::json kPresets =
      model::parse_strict_json(data_file("presets.json"), "built-in presets", kMaxDepth);
  return kPresets;
}

template <typename Value, typename Read>
void fill(std::optional<Value>& value, model::JsonFields& fields, const char* key, Read read) {
  const bool is_there = fields.has(key);
  if (is_there && !value) {
    value = read();
  } else if (is_there) {
    fields.ignore({key});
  }
}

bool says_layout(const LayoutRequest& layout) {
  return layout.tp || layout.ep || layout.pp || layout.dp || layout.moe_tp;
}

double checked(double value, const char* flag, double most) {
  if (!(value > 0) || value > most) {
    model::throw_input_error("{} {}: expected a number above 0 and up to {}", flag, value, most);
  }
  return value;
}

double share(double value, const char* flag, double most) {
  if (!(value >= 0) || value > most) {
    model::throw_input_error("{} {}: expected a number from 0 to {}", flag, value, most);
  }
  return value;
}

double chunk_tokens(double value) {
  constexpr double kFewest = 16;
  constexpr double kMost = 1 << 20;
  if (!(value >= kFewest) || value > kMost) {
    model::throw_input_error("--prefill-chunk {}: expected {} to {} tokens", value, kFewest, kMost);
  }
  return value;
}

model::ModelConfig load_config(const std::string& name) {
  if (name == "deepseek-v3" || name == "kimi-k2") {
    return model::built_in_config(name);  // no catalogue: an estimate starts in milliseconds
  }
  const DescribedModel described = load_model(name);
  if (described.mla_config() == nullptr) {
    model::throw_input_error(
        "--model {}: its attention is {}, estimates know MLA only (deepseek-v3, kimi-k2, a config.json)",
        name,
        described.attention);
  }
  return *described.mla_config();
}

SharedExpertPlace shared_place(const std::string& name) {
  if (name.empty()) {
    return SharedExpertPlace::kDefault;
  }
  if (name == "replicated") {
    return SharedExpertPlace::kReplicated;
  }
  if (name == "sharded") {
    return SharedExpertPlace::kSharded;
  }
  if (name == "routed") {
    return SharedExpertPlace::kRouted;
  }
  model::throw_input_error("--shared-expert {}: expected replicated, sharded or routed", model::printable(name));
}

RankLayout rank_layout(const DeploymentRequest& request,
                       const LayoutRequest& layout,
                       const model::ModelConfig& config) {
  RankLayout rank{.layout = resolve(layout),
                  .redundant_experts = request.redundant_experts.value_or(0),
                  .eplb = request.eplb,
                  .shared_expert = shared_place(request.shared_expert.value_or("")),
                  .dense_tp = request.dense_tp,
                  .backend = request.all_to_all,
                  .two_batch_overlap = request.two_batch_overlap,
                  .cuda_graph = !request.no_cuda_graph,
                  .early_engine = request.early_engine,
                  .kv_dtype = request.kv_dtype.value_or("bf16") == "fp8" ? KvDtype::kFp8 : KvDtype::kBf16,
                  .mtp_depth = static_cast<int64_t>(request.acceptance.size())};
  constexpr int64_t kMostSlots = 1 << 16;
  if (rank.redundant_experts < 0 || rank.redundant_experts > kMostSlots) {
    model::throw_input_error("--redundant-experts {}: expected 0 to {}", rank.redundant_experts, kMostSlots);
  }
  check_rank(config, rank);
  return rank;
}

// As a file lists them, or by means and variations.
MeasuredLengths lengths_of(const DeploymentRequest& request) {
  if (!request.lengths.empty()) {
    return read_lengths(request.lengths);
  }
  constexpr double kMostCv = 10;
  return {.mean_prompt_tokens = checked(request.prompt_tokens.value_or(4096), "--isl", kMostTokens),
          .mean_answer_tokens = checked(request.answer_tokens.value_or(1024), "--osl", kMostTokens),
          .shape = log_normal_lengths(share(request.prompt_cv, "--isl-cv", kMostCv),
                                      share(request.answer_cv, "--osl-cv", kMostCv))};
}

int64_t checked_workers(const std::optional<int64_t>& workers, const char* flag) {
  return static_cast<int64_t>(checked(static_cast<double>(workers.value_or(1)), flag, 1 << 16));
}

}  // namespace

std::string preset_names() {
  std::string names;
  for (const auto& [name, unused] : presets().items()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

DeploymentRequest with_preset(DeploymentRequest request) {
  if (request.preset.empty()) {
    return request;
  }
  if (!presets().contains(request.preset)) {
    model::throw_input_error("--preset {}: expected one of {}", model::printable(request.preset), preset_names());
  }
  model::JsonFields fields(presets()[request.preset], "preset " + request.preset, "");
  const auto text = [&](const char* key) { return [&fields, key] { return fields.text_or(key, ""); }; };
  const auto number = [&](const char* key) { return [&fields, key] { return fields.positive_number(key); }; };
  const auto count = [&](const char* key) { return [&fields, key] { return fields.integer(key, 0); }; };
  fill(request.gpu, fields, "gpu", text("gpu"));
  fill(request.engine, fields, "engine", text("engine"));
  fill(request.kv_dtype, fields, "kv_dtype", text("kv_dtype"));
  fill(request.prompt_tokens, fields, "isl", number("isl"));
  fill(request.answer_tokens, fields, "osl", number("osl"));
  if (!request.concurrency) {
    fill(request.batch, fields, "batch", number("batch"));
  }
  fill(request.redundant_experts, fields, "redundant_experts", count("redundant_experts"));
  fill(request.shared_expert, fields, "shared_expert", text("shared_expert"));
  fill(request.comm_sms, fields, "comm_sms", count("comm_sms"));
  fill(request.skew, fields, "skew", text("skew"));
  request.eplb = request.eplb || fields.boolean_or("eplb", false);
  request.two_batch_overlap = request.two_batch_overlap || fields.boolean_or("two_batch_overlap", false);
  request.decode_only = request.decode_only || fields.boolean_or("decode_only", false);
  if (!says_layout(request.layout)) {
    request.layout = parse_shorthand(fields.text_or("layout", ""));
  }
  return request;
}

Deployment build_deployment(const DeploymentRequest& asked) {
  constexpr double kMostRequests = 1e7;
  constexpr double kMostPrefixHit = 0.99;
  const DeploymentRequest request = with_preset(asked);
  Deployment deployment{.config = load_config(request.model.value_or("deepseek-v3")),
                        .hardware = load_hardware(request.gpu.value_or("h200")),
                        .engine = load_engine(request.engine.value_or("sglang")),
                        .decode = {},
                        .prefill = {},
                        .workload = {}};
  for (const double chance : request.acceptance) {
    checked(chance, "--mtp-acceptance", 1);
  }
  const LayoutRequest layout = says_layout(request.layout) ? request.layout : parse_shorthand("tp8");
  deployment.decode = {.rank = rank_layout(request, layout, deployment.config),
                       .workers = checked_workers(request.workers, "--workers")};
  if (request.prefill_layout) {
    deployment.prefill = Pool{.rank = rank_layout(request, *request.prefill_layout, deployment.config),
                              .workers = checked_workers(request.prefill_workers, "--prefill-workers")};
  }
  const MeasuredLengths lengths = lengths_of(request);
  const double dp_ranks = static_cast<double>(deployment.decode.rank.layout.dp * deployment.decode.workers);
  deployment.workload = {.prompt_tokens = lengths.mean_prompt_tokens,
                         .answer_tokens = lengths.mean_answer_tokens,
                         .concurrency = request.concurrency
                                            ? checked(*request.concurrency, "--concurrency", kMostRequests)
                                            : checked(request.batch.value_or(32), "--bs", 1 << 16) * dp_ranks,
                         .lengths = lengths.shape,
                         .prefix_hit = share(request.prefix_hit, "--prefix-hit", kMostPrefixHit),
                         .prefill_chunk = request.prefill_chunk ? chunk_tokens(*request.prefill_chunk) : 0,
                         .steps_per_chunk = checked(request.steps_per_chunk, "--steps-per-chunk", kMostTokens),
                         .prefill_in_turn = request.prefill_in_turn,
                         .acceptance = request.acceptance};
  deployment.decode_only = request.decode_only;
  deployment.memory_frac = checked(request.memory_frac.value_or(0.92), "--memory-frac", 1);
  return deployment;
}

}  // namespace simulator
