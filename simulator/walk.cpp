#include "simulator/walk.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "model/check.hpp"
#include "simulator/traffic.hpp"
#include "simulator/walk_rank.hpp"

namespace simulator {
namespace {

using model::DType;
using model::Op;
using model::OpKind;

constexpr int64_t kMaxTokens = 1 << 24;     // of all DP ranks
constexpr int64_t kMaxPositions = 1 << 24;  // of a sequence

// Appends the collectives that an op needs before or after it.
class Walker {
 public:
  Walker(const RankView& view, Walk& walk)
      : view_(view), walk_(walk), layout_(view.plan().layout), config_(view.plan().config) {}

  void before(const Op& op) {
    if (op.id.ends_with(".moe.expert.*.gate")) {
      if (view_.has_alltoall()) {
        alltoall(op,
                 parent(op, ".expert.*.gate") + ".dispatch",
                 dispatch_bytes(),
                 config_.quantization ? DType::kF8E4M3 : DType::kBF16);
      } else if (layout_.sequence_parallel) {
        in_tp_group(op, Collective::kAllGather, parent(op, ".expert.*.gate"), hidden_bytes());
      }
    } else if (op.kind == OpKind::kCombine && view_.has_alltoall()) {
      alltoall(
          op, parent(op, ".routed") + ".combine", copies() * copy_bytes(config_.hidden_size).combine, DType::kBF16);
    } else if (op.id.ends_with(".moe.shared.gate") && layout_.sequence_parallel && view_.has_alltoall()) {
      in_tp_group(op, Collective::kAllGather, parent(op, ".gate"), hidden_bytes());
    }
  }

  void after(const Op& op) {
    const bool is_moe = config_.is_moe_layer(op.layer);
    const bool is_sp = is_moe && layout_.sequence_parallel;
    if (op.kind == OpKind::kEmbed || (op.kind == OpKind::kLinear && op.id.ends_with(".ffn"))) {
      in_tp_group(op, Collective::kAllReduce, op.id, hidden_bytes());
    } else if (op.id.ends_with(".attn.o_proj")) {
      in_tp_group(op, is_sp ? Collective::kReduceScatter : Collective::kAllReduce, op.id, hidden_bytes());
    } else if (op.id.ends_with(".moe.shared") && view_.has_alltoall()) {
      in_tp_group(op, Collective::kReduceScatter, op.id, hidden_bytes());
    } else if (op.kind == OpKind::kMoeOutput && !is_sp) {
      in_tp_group(op, view_.has_alltoall() ? Collective::kAllGather : Collective::kAllReduce, op.id, hidden_bytes());
    } else if (op.kind == OpKind::kMoeOutput && !view_.has_alltoall()) {
      in_tp_group(op, Collective::kReduceScatter, op.id, hidden_bytes());
    } else if (op.kind == OpKind::kLayerOutput) {
      if (is_sp) {
        in_tp_group(op, Collective::kAllGather, op.id, hidden_bytes());
      }
      send_to_next_stage(op);
    } else if (op.kind == OpKind::kHead) {
      const int64_t logits_bytes = view_.shape().num_tokens() * config_.vocab_size * model::dtype_bytes(DType::kF32);
      in_tp_group(op, Collective::kAllGather, op.id, logits_bytes, DType::kF32);
    }
  }

 private:
  static std::string parent(const Op& op, std::string_view suffix) {
    CHECK(op.id.ends_with(suffix));
    return op.id.substr(0, op.id.size() - suffix.size());
  }

  [[nodiscard]] int64_t hidden_bytes() const {
    return view_.shape().num_tokens() * config_.hidden_size * model::dtype_bytes(DType::kBF16);
  }

  // Copies that a rank dispatches: each TP rank takes its share of the tokens.
  [[nodiscard]] int64_t copies() const {
    return (view_.shape().num_tokens() + layout_.tp - 1) / layout_.tp * config_.num_experts_per_tok;
  }

  [[nodiscard]] int64_t dispatch_bytes() const {
    const CopyBytes copy = copy_bytes(config_.hidden_size);
    return copies() * (config_.quantization ? copy.dispatch + copy.dispatch_scales : copy.combine);
  }

  WalkStep& add(const Op& op, Collective collective, std::string id, int64_t group_len, DType dtype) {
    WalkStep step{.id = std::move(id),
                  .kind = std::string(collective_name(collective)),
                  .layer = op.layer,
                  .stage = view_.stage_of(op),
                  .dtype = dtype,
                  .collective = collective,
                  .group_len = group_len};
    walk_.steps.push_back(std::move(step));
    return walk_.steps.back();
  }

  // Ring algorithms: an all-reduce passes every byte around twice, the other two once.
  void in_tp_group(
      const Op& op, Collective collective, const std::string& id, int64_t payload, DType dtype = DType::kBF16) {
    if (layout_.tp == 1) {
      return;
    }
    WalkStep& step = add(op, collective, id + "." + std::string(collective_name(collective)), layout_.tp, dtype);
    const int64_t width = dtype == DType::kF32 ? config_.vocab_size : config_.hidden_size;
    step.global_shape = {view_.shape().num_tokens() * layout_.dp, width};
    step.rank_shape = {view_.shape().num_tokens(), width};
    step.payload_bytes = payload;
    const int64_t twice = ring_allreduce_bytes(payload, layout_.tp);
    step.rank_wire_bytes = static_cast<double>(collective == Collective::kAllReduce ? twice : twice / 2);
  }

  // Every expert is equally likely, so 1 / ep of the copies stay.
  void alltoall(const Op& op, const std::string& id, int64_t payload, DType dtype) {
    WalkStep& step = add(op, Collective::kAllToAll, id, layout_.ep, dtype);
    step.global_shape = {view_.shape().num_tokens() * layout_.dp * config_.num_experts_per_tok, config_.hidden_size};
    step.rank_shape = {copies(), config_.hidden_size};
    step.payload_bytes = payload;
    step.rank_wire_bytes = static_cast<double>(payload) * (1 - 1 / static_cast<double>(layout_.ep));
  }

  void send_to_next_stage(const Op& op) {
    const int64_t stage = view_.stage_of(op);
    if (stage == layout_.pp - 1 || op.layer + 1 < view_.plan().stage_layers(stage).end) {
      return;
    }
    WalkStep& step = add(op, Collective::kSend, op.id + ".send", 2, DType::kBF16);
    step.group_stride = layout_.stage_len();
    step.global_shape = {view_.shape().num_tokens() * layout_.dp, config_.hidden_size};
    step.rank_shape = {view_.shape().num_tokens(), config_.hidden_size};
    step.payload_bytes = hidden_bytes();
    step.rank_wire_bytes = static_cast<double>(hidden_bytes());
  }

  const RankView& view_;
  Walk& walk_;
  const model::ParallelLayout& layout_;
  const model::ModelConfig& config_;
};

model::Workload workload_of(const model::ModelConfig& config, const StepShape& shape, int64_t num_sequences) {
  return {.sequences = std::vector<model::SequenceStep>(static_cast<size_t>(num_sequences),
                                                        {.num_cached = shape.num_cached, .num_new = shape.num_new}),
          .attention_form =
              shape.phase == Phase::kDecode ? model::AttentionForm::kAbsorbed : model::AttentionForm::kExpanded,
          .num_mtp_layers = shape.with_mtp ? config.num_nextn_predict_layers : 0};
}

void check_shape(const model::ParallelPlan& plan, const StepShape& shape) {
  const auto check = [](const char* what, int64_t value, int64_t min, int64_t max) {
    if (value < min || value > max) {
      model::throw_input_error("{} {}: expected {} to {}", what, value, min, max);
    }
  };
  check("sequences of a rank", shape.num_sequences, 1, kMaxTokens);
  check("new tokens", shape.num_new, 1, kMaxPositions);
  check("cached tokens", shape.num_cached, 0, kMaxPositions);
  if (shape.num_new > kMaxTokens / plan.layout.dp / shape.num_sequences) {
    model::throw_input_error("{} sequences of {} new tokens on each of {} DP ranks: expected at most {} tokens in all",
                             shape.num_sequences,
                             shape.num_new,
                             plan.layout.dp,
                             kMaxTokens);
  }
  if (shape.num_cached + shape.num_new > plan.config.max_position_embeddings) {
    model::throw_input_error("{} cached and {} new tokens: the model has {} positions",
                             shape.num_cached,
                             shape.num_new,
                             plan.config.max_position_embeddings);
  }
  if (shape.with_mtp && plan.config.num_nextn_predict_layers == 0) {
    model::throw_input_error("mtp: the model has no MTP layer (num_nextn_predict_layers 0)");
  }
}

}  // namespace

std::string_view collective_name(Collective collective) {
  switch (collective) {
    case Collective::kNone: return "";
    case Collective::kAllReduce: return "all_reduce";
    case Collective::kAllGather: return "all_gather";
    case Collective::kReduceScatter: return "reduce_scatter";
    case Collective::kAllToAll: return "all_to_all";
    case Collective::kSend: return "send";
  }
  model::throw_check_error(__FILE__, __LINE__, "unknown collective");
}

Walk walk(const model::ParallelPlan& plan, const StepShape& shape) {
  check_shape(plan, shape);
  Walk result{.layout = plan.layout, .shape = shape, .steps = {}};
  const RankView view(plan, shape);
  Walker walker(view, result);
  const auto whole = model::op_list(plan.config, workload_of(plan.config, shape, shape.num_sequences * plan.layout.dp));
  const auto own = model::op_list(plan.config, workload_of(plan.config, shape, shape.num_sequences));
  CHECK_EQ(whole.size(), own.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    walker.before(whole[i]);
    result.steps.push_back(view.share(whole[i], own[i]));
    walker.after(whole[i]);
  }
  return result;
}

}  // namespace simulator
