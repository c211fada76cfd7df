#include "simulator/step_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/check.hpp"

namespace simulator {
namespace {

enum Lane : size_t { kSm, kNvlink, kNetwork, kHostLane, kNumLanes };

struct Item {
  Lane lane = kSm;
  std::string name;
  double duration_us = 0;
  int64_t layer = -1;
};

Lane lane_of(const StepLeaf& leaf, bool tp_crosses_domains) {
  switch (leaf.part) {
    case StepPart::kAllReduce: return tp_crosses_domains ? kNetwork : kNvlink;
    case StepPart::kPipelineSend: return kNetwork;
    case StepPart::kDispatch:
    case StepPart::kCombine: return leaf.work.network_bytes > 0 ? kNetwork : kNvlink;
    case StepPart::kLaunches:
    case StepPart::kHost: return kHostLane;
    default: return kSm;
  }
}

// The items of one batch on one rank, in order.
class Sequence {
 public:
  Sequence(const StepModel& model, const StepCost& cost) : model_(model), cost_(cost) {}

  // `layers`: of each MoE layer what every rank takes, as sampled.
  std::vector<Item> items(const std::vector<std::vector<MoeRankTime>>& layers, size_t rank) {
    const auto& config = model_.config();
    size_t moe_layer = 0;
    for (layer_ = 0; layer_ < config.num_hidden_layers; ++layer_) {
      add(StepPart::kAttentionFixed);
      add(StepPart::kAttentionProjections);
      add(StepPart::kAttentionCache);
      add_all_reduce(false);
      const bool is_moe = config.is_moe_layer(layer_);
      if (is_moe) {
        add(StepPart::kRouter);
        add(StepPart::kSharedExpert);
        add_experts(layers[moe_layer], rank);
        ++moe_layer;
      } else {
        add(StepPart::kDenseFfn);
      }
      if (!is_moe || !model_.rank().is_spread()) {
        add_all_reduce(!is_moe && model_.rank().dense_ranks() != model_.rank().layout.tp);
      }
    }
    layer_ = -1;
    add(StepPart::kPipelineSend);
    add(StepPart::kHead);
    return std::move(items_);
  }

 private:
  // Every leaf of the part, once.
  void add(StepPart part) {
    for (const StepLeaf& leaf : cost_.leaves) {
      if (leaf.part == part) {
        push(lane_of(leaf, model_.tp_crosses_domains()), std::string(step_part_info(part).name), leaf.each_us);
      }
    }
  }

  // The TP group's, or that of dense layers spread otherwise: its leaf is the last one, absent for one rank.
  void add_all_reduce(bool is_of_dense) {
    const StepLeaf* chosen = nullptr;
    for (const StepLeaf& leaf : cost_.leaves) {
      const int64_t ranks = is_of_dense ? model_.rank().dense_ranks() : model_.rank().layout.tp;
      chosen = leaf.part == StepPart::kAllReduce && leaf.work.num_ranks == ranks ? &leaf : chosen;
    }
    if (chosen != nullptr) {
      push(lane_of(*chosen, model_.tp_crosses_domains()), "all-reduce", chosen->each_us);
    }
  }

  void add_experts(const std::vector<MoeRankTime>& ranks, size_t rank) {
    double before_us = 0;
    double combine_us = 0;
    for (const MoeRankTime& time : ranks) {
      before_us = std::max(before_us, time.dispatch_us + time.compute_us);
      combine_us = std::max(combine_us, time.combine_us);
    }
    const auto exchange = std::ranges::find(cost_.leaves, StepPart::kDispatch, &StepLeaf::part);
    const Lane lane = exchange == cost_.leaves.end() ? kSm : lane_of(*exchange, false);
    const MoeRankTime& own = ranks[rank];
    push(lane, "dispatch", own.dispatch_us);
    push(kSm, "experts", own.compute_us);
    push(lane, "waiting for the slowest rank", before_us - own.dispatch_us - own.compute_us);
    push(lane, "combine", own.combine_us);
    push(lane, "waiting for the slowest combine", combine_us - own.combine_us);
  }

  void push(Lane lane, std::string name, double alone_us) {
    constexpr double kRounding = 1e-6;  // what the slowest rank waits for itself
    if (alone_us > kRounding) {
      items_.push_back({lane, std::move(name), alone_us * model_.engine().stream_factor, layer_});
    }
  }

  const StepModel& model_;
  const StepCost& cost_;
  int64_t layer_ = 0;
  std::vector<Item> items_;
};

// Batches take turns on the lanes: of those whose next item could start, the earliest goes first. Returns when the last one ends.
double place(const std::vector<std::vector<Item>>& batches, int64_t process, std::vector<model::TraceSpan>& spans) {
  std::array<double, kNumLanes> lane_free{};
  std::vector<double> ready(batches.size(), 0.0);
  std::vector<size_t> next(batches.size(), 0);
  double end_us = 0;
  while (true) {
    size_t chosen = batches.size();
    double start_us = 0;
    for (size_t i = 0; i < batches.size(); ++i) {
      if (next[i] == batches[i].size()) {
        continue;
      }
      const double possible_us = std::max(ready[i], lane_free.at(batches[i][next[i]].lane));
      if (chosen == batches.size() || possible_us < start_us) {
        chosen = i;
        start_us = possible_us;
      }
    }
    if (chosen == batches.size()) {
      return end_us;
    }
    const Item& item = batches[chosen][next[chosen]++];
    spans.push_back({.process = process,
                     .lane = static_cast<int64_t>(item.lane),
                     .name = item.name,
                     .start_us = start_us,
                     .duration_us = item.duration_us,
                     .details = {{"layer", static_cast<double>(item.layer)}, {"batch", static_cast<double>(chosen)}}});
    ready[chosen] = start_us + item.duration_us;
    lane_free.at(item.lane) = ready[chosen];
    end_us = std::max(end_us, ready[chosen]);
  }
}

}  // namespace

model::ChromeTrace step_trace(const Deployment& deployment,
                              const std::vector<ChosenFit>& fits,
                              MoeCurves& curves,
                              const Serving& serving,
                              const std::vector<int64_t>& ranks) {
  const RankLayout& rank = deployment.decode.rank;
  const StepModel model(deployment.config, deployment.hardware, fits, deployment.engine, rank, curves);
  const int64_t num_ranks = std::max(rank.layout.ep, rank.layout.tp);
  const DecodePoint point{.sequences = serving.decode_sequences / static_cast<double>(rank.layout.pp),
                          .kv_len = deployment.workload.mean_kv_len()};
  const auto layers = model.sampled_ranks(point);
  model::ChromeTrace trace;
  for (const int64_t chosen : ranks) {
    if (chosen < 0 || chosen >= num_ranks) {
      model::throw_input_error("--ranks {}: the group has ranks 0 to {}", chosen, num_ranks - 1);
    }
    const auto process = static_cast<int64_t>(trace.processes.size());
    trace.processes.push_back({fmt::format("rank {}", chosen), {"SM", "NVLink", "network", "host"}});
    // Without an EP group all ranks of a TP group do the same.
    const size_t sampled_rank = layers.empty() ? 0 : static_cast<size_t>(chosen) % layers.front().size();
    const std::vector<Item> items = Sequence(model, serving.step).items(layers, sampled_rank);
    double end_us = place(std::vector(rank.two_batch_overlap ? 2 : 1, items), process, trace.spans);
    // What is no kernel of a layer follows as one span each.
    for (const StepPart part : {StepPart::kDrafting, StepPart::kEarlyEngine, StepPart::kLaunches, StepPart::kHost}) {
      for (const StepLeaf& leaf : serving.step.leaves) {
        if (leaf.part == part) {
          const double factor = part == StepPart::kDrafting ? model.engine().stream_factor : 1;
          trace.spans.push_back({.process = process,
                                 .lane = static_cast<int64_t>(lane_of(leaf, false)),
                                 .name = std::string(step_part_info(part).name),
                                 .start_us = end_us,
                                 .duration_us = leaf.total_us() * factor});
          end_us += trace.spans.back().duration_us;
        }
      }
    }
  }
  return trace;
}

}  // namespace simulator
