#include "reference/plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "reference/ops/attention.hpp"

namespace reference {
namespace {

bool is_cache(const std::string& id) {
  return id.starts_with("cache.");
}

void forget_costs(model::Op& op) {
  op.flops = 0;
  op.weight_bytes = 0;
  op.activation_bytes = 0;
  op.kv_bytes = 0;
}

// The first extent of an op's result. kv_b works on every cached position, as the cache itself does.
int64_t num_rows(const model::Op& op, const model::Workload& workload) {
  const bool of_keys = op.kind == model::OpKind::kCacheLatent || is_kv_b(op);
  return of_keys ? workload.num_keys() : workload.num_tokens();
}

std::optional<WeightMatrix> matrix_of(const model::WeightSource& weights, const model::Op& op) {
  switch (op.kind) {
    case model::OpKind::kEmbed:
    case model::OpKind::kLinear:
    case model::OpKind::kQueryLatent:
    case model::OpKind::kAttentionContext:
    case model::OpKind::kRouterLogits:
    case model::OpKind::kMtpConcat:
    case model::OpKind::kHead: break;
    default: return std::nullopt;
  }
  return op.weights.empty() ? std::nullopt : std::optional(WeightMatrix(weights, op.weights.front()));
}

std::optional<model::TensorView> vector_of(const model::WeightSource& weights, const model::Op& op) {
  switch (op.kind) {
    case model::OpKind::kRmsNorm:
    case model::OpKind::kRouterGroups:
    case model::OpKind::kRouterExperts: break;
    default: return std::nullopt;
  }
  return op.weights.empty() ? std::nullopt : std::optional(weights.weight(op.weights.front()));
}

// Views without bytes whose shapes have memory for as many extents as a result can have.
std::vector<model::TensorView> roomy_views(size_t count) {
  constexpr size_t kMaxRank = 3;
  std::vector<model::TensorView> views(count);
  std::ranges::for_each(views, [](model::TensorView& view) { view.shape.reserve(kMaxRank); });
  return views;
}

// Slots by the id of the value.
class Slots {
 public:
  int of(const std::string& id) { return by_id_.emplace(id, static_cast<int>(by_id_.size())).first->second; }
  [[nodiscard]] std::optional<int> find(const std::string& id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? std::nullopt : std::optional(found->second);
  }
  [[nodiscard]] size_t size() const { return by_id_.size(); }

 private:
  std::map<std::string, int> by_id_;
};

// Whether the op reads kv_b dequantised in every step.
bool absorbs_kv_b(const model::Op& op) {
  return op.kind == model::OpKind::kQueryLatent || (op.kind == model::OpKind::kAttentionContext && !op.weights.empty());
}

}  // namespace

void clear(model::TensorView& view) {
  view.shape.clear();
  view.bytes = {};
  view.owner.reset();
}

Plan::Plan(const model::WeightSource& weights,
           const model::Workload& workload,
           bool keeps_weights,
           HalfWeights* half_weights)
    : workload_(workload) {
  Slots slots;
  std::optional<PlannedOp> kv_b;  // of the layer at hand
  const auto matrix = [&](const model::Op& op) -> std::optional<WeightMatrix> {
    auto stored = keeps_weights ? matrix_of(weights, op) : std::nullopt;
    if (stored && half_weights != nullptr && stored->is_fp8() && absorbs_kv_b(op)) {
      if (auto half = half_weights->find(op.weights.front(), *stored)) {
        return half;
      }
    }
    return stored;
  };
  for (model::Op& op : model::op_list(weights.config(), workload)) {
    forget_costs(op);
    PlannedOp planned{.op = std::move(op)};
    for (const std::string& input : planned.op.inputs) {
      planned.inputs.push_back(is_cache(input) ? kCacheSlot : slots.of(input));
    }
    if (planned.op.kind != model::OpKind::kCacheLatent) {
      planned.output = slots.of(planned.op.id);
    }
    planned.views = roomy_views(planned.inputs.size());
    while (values_.size() < slots.size()) {
      values_.push_back({.whole = std::move(roomy_views(1).front())});
    }
    if (planned.op.num_parts == 1) {
      planned.matrix = matrix(planned.op);
      if (is_kv_b(planned.op)) {
        kv_b = planned;
      } else if (kv_b && std::ranges::count(planned.inputs, kv_b->output) > 0) {
        planned.matrix = kv_b->matrix;
      }
      planned.vector = keeps_weights ? vector_of(weights, planned.op) : std::nullopt;
    } else {
      value(planned.output).parts = roomy_views(static_cast<size_t>(planned.op.num_parts));
      for (int64_t expert = 0; expert < planned.op.num_parts; ++expert) {
        PlannedOp part{.op = model::expert_part(planned.op, expert)};
        part.matrix = matrix(part.op);
        part.views = roomy_views(planned.inputs.size());
        planned.parts.push_back(std::move(part));
      }
    }
    ops_.push_back(std::move(planned));
  }
  plan_last_reads();
  tokens_ = slots.find("tokens");
  for (int64_t k = 0; k < weights.config().num_nextn_predict_layers; ++k) {
    mtp_tokens_.push_back(slots.find("mtp." + std::to_string(k) + ".tokens"));
  }
  if (workload.only_mtp_layer) {
    mtp_state_ = slots.find(model::mtp_state_id(*workload.only_mtp_layer));
  }
}

void Plan::plan_last_reads() {
  std::map<int, size_t> last_reader;
  for (size_t i = 0; i < ops_.size(); ++i) {
    for (const int slot : ops_[i].inputs) {
      last_reader[slot] = i;
    }
  }
  last_reader.erase(kCacheSlot);
  for (const auto& [slot, reader] : last_reader) {
    ops_[reader].last_reads.push_back(slot);
  }
}

bool Plan::fits(const model::Workload& workload) const {
  return workload.attention_form == workload_.attention_form && workload.num_mtp_layers == workload_.num_mtp_layers &&
         workload.only_mtp_layer == workload_.only_mtp_layer;
}

void Plan::set_lengths(const model::Workload& workload) {
  CHECK(fits(workload));
  CHECK(workload.num_tokens() > 0);
  workload_ = workload;
  for (PlannedOp& planned : ops_) {
    model::Op& op = planned.op;
    if (op.num_parts > 1) {
      continue;  // how many rows a part has depends on the routing
    }
    op.shape.front() = num_rows(op, workload);
    if (op.kind == model::OpKind::kAttentionProbs) {
      op.shape.back() = workload.max_keys();
    }
  }
}

Value& Plan::outer_value(std::optional<int> slot) {
  CHECK(slot.has_value());
  return value(*slot);
}

}  // namespace reference
