#include "simulator/step_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/config_hash.hpp"
#include "simulator/floor.hpp"
#include "simulator/layout.hpp"
#include "simulator/step_shares.hpp"
#include "simulator/walk.hpp"

namespace simulator {
namespace {

double real(int64_t value) {
  return static_cast<double>(value);
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
  Records(
      const Deployment& deployment, const Walk& walk, std::vector<Floor> floors, StepShares shares, std::string commit)
      : deployment_(deployment),
        walk_(walk),
        floors_(std::move(floors)),
        shares_(std::move(shares)),
        commit_(std::move(commit)),
        hash_(model::config_hash(deployment.config)) {}

  [[nodiscard]] std::vector<model::OpRecord> all() const {
    std::vector<model::OpRecord> records;
    for (const auto source : {model::RecordSource::kSimulated, model::RecordSource::kLimit}) {
      for (size_t i = 0; i < walk_.steps.size(); ++i) {
        const WalkStep& step = walk_.steps[i];
        const double time_us = source == model::RecordSource::kLimit ? floors_[i].time_us : shares_.time_us[i];
        const bool is_known = source == model::RecordSource::kLimit || shares_.is_covered[i];
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
    for (const StepShares::Rest& rest : shares_.rest) {
      add_own_rows(records, rest);
    }
    return records;
  }

 private:
  // Waiting belongs to the MoE layers alike, all else to the step.
  void add_own_rows(std::vector<model::OpRecord>& records, const StepShares::Rest& rest) const {
    const model::ModelConfig& config = deployment_.config;
    if (rest.part != StepPart::kWaiting) {
      const StepPartInfo& info = step_part_info(rest.part);
      const bool is_drafting = rest.part == StepPart::kDrafting;
      records.push_back(row(is_drafting ? "mtp.drafting" : own_row(info),
                            is_drafting ? "drafting" : std::string(info.group),
                            -1,
                            rest.time_us,
                            model::RecordSource::kSimulated));
      return;
    }
    std::vector<int64_t> layers;
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      if (config.is_moe_layer(layer)) {
        layers.push_back(layer);
      }
    }
    for (const int64_t layer : layers) {
      records.push_back(row(fmt::format("layer.{}.moe.waiting", layer),
                            "waiting",
                            layer,
                            rest.time_us / real(std::ssize(layers)),
                            model::RecordSource::kSimulated));
    }
  }

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
  StepShares shares_;
  std::string commit_;
  std::string hash_;
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

  std::vector<Floor> floors = walk_floors(steps, counted, deployment.hardware);
  StepShares shares = share_out(deployment.config, steps, floors, cost);
  const Records records(deployment, steps, std::move(floors), std::move(shares), commit);
  return {.header = {fmt::format("gpu={}", deployment.hardware.title),
                     fmt::format("gpus={}", rank.layout.num_ranks()),
                     fmt::format("layout={}", layout_text(rank.layout)),
                     fmt::format("engine={}", deployment.engine.name),
                     fmt::format("redundant_experts={}", rank.redundant_experts),
                     kTimes},
          .records = records.all()};
}

}  // namespace simulator
