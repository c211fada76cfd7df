#include "simulator/step_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "model/config_hash.hpp"
#include "simulator/floor.hpp"
#include "simulator/layout.hpp"
#include "simulator/walk.hpp"

namespace simulator {
namespace {

double real(int64_t value) {
  return static_cast<double>(value);
}

bool is_kind(const WalkStep& step, model::OpKind kind) {
  return step.kind == model::op_kind_name(kind);
}

bool has(const WalkStep& step, std::string_view part) {
  return step.id.find(part) != std::string::npos;
}

// Whether a part's time belongs to this step of a layer of the main model, or to the head.
bool covers(StepPart part, const WalkStep& step) {
  const bool is_op = step.collective == Collective::kNone;
  const bool is_linear = is_kind(step, model::OpKind::kLinear);
  switch (part) {
    case StepPart::kAttentionFixed: return is_op && (has(step, ".attn.") || step.id.starts_with("cache."));
    case StepPart::kAttentionProjections: return is_op && has(step, ".attn.") && step.rank_weight_bytes > 0;
    case StepPart::kAttentionCache:
      return is_kind(step, model::OpKind::kAttentionProbs) || is_kind(step, model::OpKind::kOutputLatent);
    case StepPart::kRouter: return is_kind(step, model::OpKind::kRouterLogits);
    case StepPart::kExpertsFixed: return is_op && has(step, ".moe.expert.");
    case StepPart::kExperts: return is_linear && has(step, ".moe.expert.");
    case StepPart::kSharedExpert: return is_linear && has(step, ".moe.shared");
    case StepPart::kDenseFfn: return is_linear && (has(step, ".mlp.") || step.id.ends_with(".ffn"));
    case StepPart::kHead: return is_kind(step, model::OpKind::kHead);
    case StepPart::kAllReduce:
      return step.collective == Collective::kAllReduce || step.collective == Collective::kReduceScatter ||
             (step.collective == Collective::kAllGather && step.layer >= 0);
    case StepPart::kDispatch: return step.id.ends_with(".dispatch");
    case StepPart::kCombine: return step.id.ends_with(".combine");
    case StepPart::kPipelineSend: return step.collective == Collective::kSend;
    default: return false;
  }
}

// A fixed time belongs to every op of a module alike.
double weight_of(StepPart part, const Floor& floor) {
  return part == StepPart::kAttentionFixed || part == StepPart::kExpertsFixed ? 1 : floor.time_us;
}

constexpr const char* kTimes =
    "times: simulated = fitted constants of dsv3-sim, shared out over the ops of a module; limit = "
    "hardware floor. Neither was measured.";

// "engine.in_the_stream"
std::string own_row(const StepPartInfo& info) {
  std::string name;
  for (const char c : info.name) {
    name += c == ' ' ? '_' : c == ',' ? '.' : c;
  }
  return fmt::format("{}.{}", info.group, name);
}

class Records {
 public:
  Records(const Deployment& deployment, const Walk& walk, std::vector<Floor> floors, std::string commit)
      : deployment_(deployment),
        walk_(walk),
        floors_(std::move(floors)),
        commit_(std::move(commit)),
        hash_(model::config_hash(deployment.config)),
        time_us_(walk.steps.size(), 0),
        is_covered_(walk.steps.size(), false) {}

  // Shares a leaf out, or gives it rows of its own.
  void add(const StepLeaf& leaf, double total_us) {
    const model::ModelConfig& config = deployment_.config;
    if (leaf.part == StepPart::kWaiting) {
      std::vector<int64_t> layers;
      for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        if (config.is_moe_layer(layer)) {
          layers.push_back(layer);
        }
      }
      for (const int64_t layer : layers) {
        own_.push_back(row(fmt::format("layer.{}.moe.waiting", layer),
                           "waiting",
                           layer,
                           total_us / real(std::ssize(layers)),
                           model::RecordSource::kSimulated));
      }
      return;
    }
    double sum = 0;
    std::vector<double> weights(walk_.steps.size(), 0);
    for (size_t i = 0; i < weights.size(); ++i) {
      const WalkStep& step = walk_.steps[i];
      if (!step.is_optional && step.layer < config.num_hidden_layers && !step.id.starts_with("mtp.") &&
          covers(leaf.part, step)) {
        weights[i] = weight_of(leaf.part, floors_[i]);
        sum += weights[i];
      }
    }
    if (sum == 0) {
      const StepPartInfo& info = step_part_info(leaf.part);
      const bool is_drafting = leaf.part == StepPart::kDrafting;
      own_.push_back(row(is_drafting ? "mtp.drafting" : own_row(info),
                         is_drafting ? "drafting" : std::string(info.group),
                         -1,
                         total_us,
                         model::RecordSource::kSimulated));
      return;
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      time_us_[i] += total_us * weights[i] / sum;
      is_covered_[i] = is_covered_[i] || weights[i] > 0;
    }
  }

  [[nodiscard]] std::vector<model::OpRecord> take() {
    std::vector<model::OpRecord> records;
    for (const auto source : {model::RecordSource::kSimulated, model::RecordSource::kLimit}) {
      for (size_t i = 0; i < walk_.steps.size(); ++i) {
        const WalkStep& step = walk_.steps[i];
        const double time_us = source == model::RecordSource::kLimit ? floors_[i].time_us : time_us_[i];
        const bool is_known = source == model::RecordSource::kLimit || is_covered_[i];
        if (step.is_optional || !is_known) {
          continue;
        }
        model::OpRecord record = row(step.id, step.kind, step.layer, time_us, source);
        record.dtype = std::string(model::dtype_name(step.math_dtype));
        record.flops = std::llround(step.rank_flops);
        record.weight_bytes = std::llround(step.rank_read_bytes);
        record.kv_bytes = step.rank_kv_bytes;
        record.wire_bytes = std::llround(step.rank_wire_bytes);
        records.push_back(std::move(record));
      }
    }
    records.insert(records.end(), own_.begin(), own_.end());
    return records;
  }

 private:
  [[nodiscard]] model::OpRecord row(
      std::string op, std::string kind, int64_t layer, double time_us, model::RecordSource source) const {
    return {.op = std::move(op),
            .kind = std::move(kind),
            .layer = layer,
            .phase = "decode",
            .tokens = walk_.shape.num_tokens(),
            .batch = walk_.shape.num_sequences,
            .context_len = walk_.shape.num_cached,
            .dtype = std::string(model::dtype_name(model::DType::kBF16)),
            .time_us = time_us,
            .source = source,
            .device = deployment_.hardware.name,
            .config_hash = hash_,
            .commit = commit_};
  }

  const Deployment& deployment_;
  const Walk& walk_;
  std::vector<Floor> floors_;
  std::string commit_;
  std::string hash_;
  std::vector<double> time_us_;   // simulated, of each step of the walk
  std::vector<bool> is_covered_;  // some part has it; its time may be 0, hidden behind others
  std::vector<model::OpRecord> own_;
};

}  // namespace

model::OpRecordFile step_records(const Deployment& deployment,
                                 const std::vector<ChosenFit>& fits,
                                 MoeCurves& curves,
                                 const std::string& commit) {
  const RankLayout& rank = deployment.decode.rank;
  const Serving serving = serve(deployment, fits, curves);
  const int64_t new_tokens = 1 + rank.mtp_depth;
  const double kv_len = deployment.workload.mean_kv_len();
  const StepShape shape{
      .phase = Phase::kDecode,
      .num_sequences = std::max<int64_t>(1, std::llround(serving.decode_sequences / real(rank.layout.pp))),
      .num_cached = std::max<int64_t>(1, std::llround(kv_len) - new_tokens),
      .num_new = new_tokens,
      .with_mtp = rank.mtp_depth > 0};
  // With more ranks than experts every slot counts as an expert of its own, in the router's counts as well.
  model::ModelConfig counted = deployment.config;
  if (rank.layout.ep > counted.n_routed_experts) {
    counted.n_routed_experts = rank.num_placed_experts(deployment.config) + rank.redundant_experts;
  }
  const model::ParallelPlan plan = plan_layout(counted, rank.layout);
  const Walk steps = walk(plan, shape);
  const StepModel step_model(deployment.config, deployment.hardware, fits, deployment.engine, rank, curves);
  const StepCost cost =
      step_model.decode({.sequences = real(shape.num_sequences), .kv_len = real(shape.num_cached + shape.num_new)});

  // What overlap hides is hidden of the exchange.
  double exchange_us = 0;
  double hidden_us = 0;
  for (const StepLeaf& leaf : cost.leaves) {
    const bool is_exchange = leaf.part == StepPart::kDispatch || leaf.part == StepPart::kCombine;
    exchange_us += is_exchange ? leaf.total_us() : 0;
    hidden_us -= leaf.part == StepPart::kHidden ? leaf.total_us() : 0;
  }
  Records records(deployment, steps, walk_floors(steps, counted, deployment.hardware), commit);
  for (const StepLeaf& leaf : cost.leaves) {
    const bool is_exchange = leaf.part == StepPart::kDispatch || leaf.part == StepPart::kCombine;
    const double shown = is_exchange && exchange_us > 0 ? 1 - hidden_us / exchange_us : 1;
    if (leaf.part != StepPart::kHidden) {
      records.add(leaf, leaf.total_us() * shown);
    }
  }
  return {.header = {fmt::format("gpu={}", deployment.hardware.title),
                     fmt::format("gpus={}", rank.layout.num_ranks()),
                     fmt::format("layout={}", layout_text(rank.layout)),
                     fmt::format("engine={}", deployment.engine.name),
                     fmt::format("redundant_experts={}", rank.redundant_experts),
                     kTimes},
          .records = records.take()};
}

}  // namespace simulator
