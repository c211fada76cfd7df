#include "simulator/walk_rank.hpp"

#include <algorithm>

#include "model/check.hpp"
#include "simulator/routing.hpp"

namespace simulator {
namespace {

using model::Op;
using model::OpKind;

int64_t divided_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

// Expert 0 stands for all: "model.layers.3.mlp.experts.*.gate_proj.weight" -> "...experts.0...".
std::string first_expert(std::string weight) {
  std::ranges::replace(weight, '*', '0');
  return weight;
}

bool is_grouped(const Op& op) {
  return op.id.find('*') != std::string::npos;
}

}  // namespace

RankView::RankView(const model::ParallelPlan& plan, const StepShape& shape) : plan_(plan), shape_(shape) {
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].expert <= 0) {
      splits_[plan.tensors[i].name] = plan.splits[i];
    }
  }
}

bool RankView::has_alltoall() const {
  const model::ParallelLayout& layout = plan_.layout;
  return layout.ep > layout.tp || (layout.sequence_parallel && layout.ep == layout.tp && layout.ep > 1);
}

int64_t RankView::token_split(const Op& op) const {
  if (!plan_.config.is_moe_layer(op.layer)) {
    return 1;
  }
  const bool after_experts =
      op.kind == OpKind::kCombine || op.kind == OpKind::kMoeOutput || op.kind == OpKind::kLayerOutput;
  const bool before_experts = op.kind == OpKind::kResidualAdd || op.id.ends_with(".ffn_norm") ||
                              op.id.find(".moe.router_") != std::string::npos || op.kind == OpKind::kRouterGroups ||
                              op.kind == OpKind::kRouterExperts || op.kind == OpKind::kRouterWeights;
  if (plan_.layout.sequence_parallel) {
    // Without an all-to-all the experts' sum is still partial: it is scattered behind the whole MoE output.
    const bool is_partial = !has_alltoall() && (op.kind == OpKind::kCombine || op.kind == OpKind::kMoeOutput);
    return (before_experts || after_experts) && !is_partial ? plan_.layout.tp : 1;
  }
  return has_alltoall() && (op.kind == OpKind::kCombine || op.kind == OpKind::kMoeOutput) ? plan_.layout.tp : 1;
}

int64_t RankView::stage_of(const Op& op) const {
  const int64_t last = plan_.layout.pp - 1;
  if (op.layer < 0) {
    return op.kind == OpKind::kEmbed ? 0 : last;
  }
  for (int64_t stage = 0; stage < last; ++stage) {
    if (op.layer < plan_.stage_layers(stage).end) {
      return stage;
    }
  }
  return last;
}

const model::TensorSplit& RankView::split_of(const std::string& weight) const {
  const auto found = splits_.find(first_expert(weight));
  CHECK(found != splits_.end());
  return found->second;
}

void RankView::cut_linear(const Op& own, WalkStep& step) const {
  const model::TensorSplit& split = split_of(own.weights.front());
  step.rank_weight_bytes /= split.degree;
  step.rank_read_bytes /= static_cast<double>(split.degree);
  step.rank_flops /= static_cast<double>(split.degree);
  if (split.dimension == 0) {
    step.rank_shape.back() /= split.degree;
  }
}

void RankView::cut_heads(WalkStep& step, size_t dimension) const {
  const int64_t tp = plan_.layout.tp;
  step.rank_shape[dimension] /= tp;
  step.rank_weight_bytes /= tp;
  step.rank_read_bytes /= static_cast<double>(tp);
  step.rank_flops /= static_cast<double>(tp);
}

// Rows: the copies of all tokens of the EP group, spread evenly over its ranks.
void RankView::cut_experts(const Op& op, const Op& own, WalkStep& step) const {
  const model::ParallelLayout& layout = plan_.layout;
  const int64_t num_experts = plan_.config.n_routed_experts;
  const int64_t per_token = plan_.config.num_experts_per_tok;
  const int64_t degree = layout.expert_tp();
  const int64_t group_tokens = shape_.num_tokens() * (layout.ep > layout.tp ? layout.ep / layout.tp : 1);
  step.global_shape.front() = shape_.num_tokens() * layout.dp * per_token;
  step.rank_shape.front() = divided_up(group_tokens * per_token, layout.ep);
  step.global_parts = op.num_parts;
  step.rank_parts = divided_up(num_experts, layout.ep);
  const double active =
      expected_active_experts(num_experts, per_token, group_tokens) / static_cast<double>(num_experts);
  if (own.weights.empty()) {  // the activation: as wide as the rank's slice of the gate
    step.rank_shape.back() /= degree;
    return;
  }
  const model::TensorSplit& split = split_of(own.weights.front());
  CHECK_EQ(split.degree, degree);
  step.rank_weight_bytes = own.weight_bytes / num_experts * step.rank_parts / degree;
  step.rank_read_bytes = static_cast<double>(step.rank_weight_bytes) * active;
  const auto own_copies = static_cast<double>(shape_.num_tokens() * per_token);
  const double rows = static_cast<double>(group_tokens * per_token) / static_cast<double>(layout.ep);
  step.rank_flops = static_cast<double>(own.flops) / own_copies * rows / static_cast<double>(degree);
  if (split.dimension == 0) {
    step.rank_shape.back() /= degree;
  }
}

WalkStep RankView::share(const Op& op, const Op& own) const {
  WalkStep step{.id = op.id,
                .kind = std::string(model::op_kind_name(op.kind)),
                .layer = op.layer,
                .stage = stage_of(op),
                .dtype = op.dtype,
                .global_shape = op.shape,
                .rank_shape = own.shape,
                .is_optional = op.optional,
                .math_dtype = op.kind == OpKind::kLinear && plan_.config.quantization ? model::DType::kF8E4M3
                                                                                      : model::DType::kBF16,
                .global_weight_bytes = op.weight_bytes,
                .rank_weight_bytes = own.weight_bytes,
                .rank_read_bytes = static_cast<double>(own.weight_bytes),
                .rank_kv_bytes = own.kv_bytes,
                .global_flops = op.flops,
                .rank_flops = static_cast<double>(own.flops)};
  if (is_grouped(op)) {
    cut_experts(op, own, step);
    return step;
  }
  switch (op.kind) {
    case OpKind::kEmbed: {
      // op_list counts the looked-up rows; held is the table.
      const int64_t table_bytes =
          plan_.config.vocab_size * plan_.config.hidden_size * model::dtype_bytes(model::DType::kBF16);
      step.global_weight_bytes = table_bytes;
      step.rank_weight_bytes = table_bytes / plan_.layout.tp;
      step.rank_read_bytes /= static_cast<double>(plan_.layout.tp);
      break;
    }
    case OpKind::kLinear:
    case OpKind::kHead: cut_linear(own, step); break;
    case OpKind::kRotateQuery:
    case OpKind::kQueryLatent:
    case OpKind::kAttentionProbs:
    case OpKind::kAttentionLse:
    case OpKind::kOutputLatent:
    case OpKind::kAttentionContext: cut_heads(step, 1); break;
    case OpKind::kSwiglu: step.rank_shape.back() /= plan_.layout.tp; break;
    default: break;
  }
  const int64_t split = token_split(op);
  step.rank_shape.front() = divided_up(step.rank_shape.front(), split);
  step.rank_flops /= static_cast<double>(split);
  return step;
}

}  // namespace simulator
