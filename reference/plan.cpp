#include "reference/plan.hpp"

#include <utility>

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
  const bool of_keys =
      op.kind == model::OpKind::kCacheLatent || (op.kind == model::OpKind::kLinear && is_cache(op.inputs.front()));
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

}  // namespace

Plan::Plan(const model::WeightSource& weights, const model::Workload& workload, bool keeps_weights)
    : workload_(workload) {
  const auto matrix = [&](const model::Op& op) { return keeps_weights ? matrix_of(weights, op) : std::nullopt; };
  for (model::Op& op : model::op_list(weights.config(), workload)) {
    forget_costs(op);
    PlannedOp planned{.op = std::move(op)};
    for (const std::string& input : planned.op.inputs) {
      planned.inputs.push_back(is_cache(input) ? kCacheSlot : slot_for(input));
    }
    if (planned.op.kind != model::OpKind::kCacheLatent) {
      planned.output = slot_for(planned.op.id);
    }
    if (planned.op.num_parts == 1) {
      planned.matrix = matrix(planned.op);
      planned.vector = keeps_weights ? vector_of(weights, planned.op) : std::nullopt;
    } else {
      for (int64_t expert = 0; expert < planned.op.num_parts; ++expert) {
        PlannedOp part{.op = model::expert_part(planned.op, expert)};
        part.matrix = matrix(part.op);
        planned.parts.push_back(std::move(part));
      }
    }
    ops_.push_back(std::move(planned));
  }
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

int Plan::slot(const std::string& id) const {
  const auto found = slots_.find(id);
  CHECK(found != slots_.end());
  return found->second;
}

int Plan::slot_for(const std::string& id) {
  return slots_.emplace(id, static_cast<int>(slots_.size())).first->second;
}

}  // namespace reference
