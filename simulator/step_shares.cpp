#include "simulator/step_shares.hpp"

#include <string_view>

namespace simulator {
namespace {

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
      return is_kind(step, model::OpKind::kAttentionProbs) || is_kind(step, model::OpKind::kOutputLatent) ||
             (is_kind(step, model::OpKind::kAttentionContext) && step.global_weight_bytes == 0);
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

bool is_exchange(const StepLeaf& leaf) {
  return leaf.part == StepPart::kDispatch || leaf.part == StepPart::kCombine;
}

// The part of the exchange that overlap leaves to be seen.
double seen_exchange(const StepCost& cost) {
  double exchange_us = 0;
  double hidden_us = 0;
  for (const StepLeaf& leaf : cost.leaves) {
    exchange_us += is_exchange(leaf) ? leaf.total_us() : 0;
    hidden_us -= leaf.part == StepPart::kHidden ? leaf.total_us() : 0;
  }
  return exchange_us > 0 ? 1 - hidden_us / exchange_us : 1;
}

}  // namespace

StepShares share_out(const model::ModelConfig& config,
                     const Walk& walk,
                     std::span<const Floor> floors,
                     const StepCost& cost) {
  const size_t num_steps = walk.steps.size();
  StepShares shares{
      .time_us = std::vector<double>(num_steps, 0), .is_covered = std::vector<bool>(num_steps, false), .rest = {}};
  const double seen = seen_exchange(cost);
  for (const StepLeaf& leaf : cost.leaves) {
    if (leaf.part == StepPart::kHidden) {
      continue;
    }
    const double total_us = leaf.total_us() * (is_exchange(leaf) ? seen : 1);
    double sum = 0;
    std::vector<double> weights(num_steps, 0);
    for (size_t i = 0; i < num_steps; ++i) {
      const WalkStep& step = walk.steps[i];
      if (!step.is_optional && step.layer < config.num_hidden_layers && !step.id.starts_with("mtp.") &&
          covers(leaf.part, step)) {
        weights[i] = weight_of(leaf.part, floors[i]);
        sum += weights[i];
      }
    }
    if (sum == 0) {
      shares.rest.push_back({leaf.part, total_us});
      continue;
    }
    for (size_t i = 0; i < num_steps; ++i) {
      shares.time_us[i] += total_us * weights[i] / sum;
      shares.is_covered[i] = shares.is_covered[i] || weights[i] > 0;
    }
  }
  return shares;
}

}  // namespace simulator
