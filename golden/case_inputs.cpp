#include "golden/case_inputs.hpp"

#include <algorithm>
#include <cstdint>
#include <set>

#include "golden/runs.hpp"

namespace golden {
namespace {

model::Estimate given(const model::TensorView& tensor) {
  auto values = model::to_double(tensor);
  std::vector<double> errors(values.size(), 0.0);
  return {tensor.shape, std::move(values), std::move(errors), tensor.dtype};
}

// Ids within the range and distinct in each row: expert rows can be told from them.
bool well_formed(const model::TensorView& ids, int64_t limit) {
  if (ids.dtype != model::DType::kI32) {
    return false;
  }
  const auto codes = ids.codes<int32_t>();
  const auto k = static_cast<size_t>(ids.row_len());
  for (size_t begin = 0; begin < codes.size(); begin += k) {
    std::set<int32_t> seen;
    for (const int32_t id : codes.subspan(begin, k)) {
      if (id < 0 || id >= limit || !seen.insert(id).second) {
        return false;
      }
    }
  }
  return true;
}

bool is_number(model::DType dtype) {
  return dtype == model::DType::kF64 || dtype == model::DType::kF32 || dtype == model::DType::kBF16 ||
         dtype == model::DType::kF16;
}

}  // namespace

bool is_choice(const model::Op& op) {
  return op.kind == model::OpKind::kRouterGroups || op.kind == model::OpKind::kRouterExperts;
}

CaseInputs::CaseInputs(const model::ModelConfig& config,
                       const CaseValues& values,
                       const model::Workload& workload,
                       const Recompute& recompute)
    : config_(config), values_(values), workload_(workload), recompute_(recompute) {
  expand(model::op_list(config, workload));
}

// Grouped ops become the parts of the experts that the dump's routing (else the golden's) visits.
void CaseInputs::expand(const std::vector<model::Op>& ops) {
  std::string topk_ids;
  for (const model::Op& op : ops) {
    if (op.kind == model::OpKind::kRouterExperts) {
      topk_ids = op.id;
    }
    if (op.num_parts == 1) {
      ops_.push_back(op);
      continue;
    }
    const auto* ids = values_.find(topk_ids);
    if (ids == nullptr || ids->num_rows() != workload_.num_tokens() || !well_formed(*ids, config_.n_routed_experts)) {
      ids = values_.golden(topk_ids);
    }
    if (ids == nullptr) {
      continue;
    }
    const auto chosen = ids->codes<int32_t>();
    for (int64_t expert = 0; expert < op.num_parts; ++expert) {
      if (const auto rows = std::count(chosen.begin(), chosen.end(), static_cast<int32_t>(expert)); rows > 0) {
        ops_.push_back(model::expert_part(op, expert));
        ops_.back().shape.front() = rows;
        experts_[op.id].push_back(expert);
      }
    }
  }
  for (size_t i = 0; i < ops_.size(); ++i) {
    index_[ops_[i].id] = i;
  }
}

std::string CaseInputs::malformed(const model::Op& op, const model::TensorView& tensor) const {
  model::Shape expected = op.shape;
  const auto& rows = values_.step().rows;
  if ((op.id == "final_norm" || op.id == "logits") && !rows.empty() && tensor.num_rows() != expected.front()) {
    expected.front() = static_cast<int64_t>(rows.size());
  }
  if (tensor.shape != expected) {
    return "shape " + model::shape_text(tensor.shape) + ", expected " + model::shape_text(expected);
  }
  if (is_choice(op) ? tensor.dtype != model::DType::kI32 : !is_number(tensor.dtype)) {
    return "stored as " + std::string(model::dtype_name(tensor.dtype)) +
           (is_choice(op) ? ", expected I32" : ", expected F64, F32, BF16 or F16");
  }
  return "";
}

const model::TensorView* CaseInputs::usable(const std::string& id, Trace& trace) const {
  bool assembled = false;
  const auto* tensor = values_.input(id, assembled);
  const auto found = index_.find(id);
  if (tensor == nullptr || found == index_.end()) {
    return tensor;  // absent, or fed tokens
  }
  if (assembled) {
    trace.recomputed.insert(id);
  }
  const model::Op& op = ops_[found->second];
  std::string problem = malformed(op, *tensor);
  if (problem.empty() && is_choice(op)) {
    const bool groups = op.kind == model::OpKind::kRouterGroups;
    problem =
        well_formed(*tensor, groups ? config_.n_group : config_.n_routed_experts) ? "" : "not a set of distinct ids";
  }
  if (!problem.empty()) {
    trace.missing = trace.missing.empty() ? id + " (" + problem + ")" : trace.missing;
    return nullptr;
  }
  return tensor;
}

template <typename Tensor, typename Give, typename Compute>
std::optional<Tensor> CaseInputs::value_of(
    const std::string& id, const std::string& block, const Give& give, const Compute& compute, Trace& trace) {
  if (const auto* tensor = usable(id, trace); tensor != nullptr) {
    trace.reads.push_back(id);
    return give(*tensor);
  }
  if (!trace.missing.empty()) {
    return std::nullopt;
  }
  const auto found = index_.find(id);
  if (found == index_.end()) {
    trace.missing = trace.missing.empty() ? id : trace.missing;
    return std::nullopt;
  }
  const model::Op& op = ops_[found->second];
  const auto blocks = blocks_of(op);
  const bool copies = op.kind == model::OpKind::kEmbed || op.kind == model::OpKind::kCacheLatent;
  const bool spans = copies || std::find(blocks.begin(), blocks.end(), block) != blocks.end();
  if (!spans || is_choice(op)) {
    trace.missing = trace.missing.empty() ? id : trace.missing;
    return std::nullopt;
  }
  // A cache row may need its rotated key, which belongs to the attention core whoever reads the row.
  const std::string inner_block = op.kind == model::OpKind::kCacheLatent ? blocks.front() : block;
  auto inputs = gather<Tensor>(op, inner_block, give, compute, trace);
  if (!inputs) {
    return std::nullopt;
  }
  trace.recomputed.insert(id);
  trace.kinds.insert(op.kind);
  return compute(op, *inputs);
}

template <typename Tensor, typename Give, typename Compute>
std::optional<OpInputs<Tensor>> CaseInputs::gather(
    const model::Op& op, const std::string& block, const Give& give, const Compute& compute, Trace& trace) {
  OpInputs<Tensor> result;
  for (const std::string& id : op.inputs) {
    if (id == op.id) {  // the cache before this step
      const auto* before = values_.cached_before(id);
      if (before == nullptr) {
        trace.missing = trace.missing.empty() ? id + " of the step before" : trace.missing;
        return std::nullopt;
      }
      if (values_.from_golden(id)) {
        notes_.insert(values_.step().name + "/" + id +
                      ": earlier rows are not in the dump, the golden run's were used");
      }
      result.inputs.push_back(before->bytes.empty() ? Tensor{} : give(*before));
      continue;
    }
    if (id.find('*') != std::string::npos) {  // a combine: all parts
      result.inputs.push_back({});
      result.expert_outputs.resize(static_cast<size_t>(config_.n_routed_experts));
      for (const int64_t expert : experts_[id]) {
        std::string part = id;
        part.replace(part.find('*'), 1, std::to_string(expert));
        auto value = value_of<Tensor>(part, block, give, compute, trace);
        if (!value) {
          return std::nullopt;
        }
        result.expert_outputs[static_cast<size_t>(expert)] = std::move(*value);
      }
      continue;
    }
    auto value = value_of<Tensor>(id, block, give, compute, trace);
    if (!value) {
      return std::nullopt;
    }
    result.inputs.push_back(std::move(*value));
  }
  return result;
}

// The sum with the shared expert, begun at the experts where the dump skips what lies between: some rules interleave the two.
model::Op CaseInputs::with_skipped_combine(const model::Op& op, Trace& trace) const {
  if (op.kind != model::OpKind::kMoeOutput || values_.find(op.inputs[0]) != nullptr) {
    return op;
  }
  const model::Op& combine = ops_[index_.at(op.inputs[0])];
  model::Op whole = op;
  whole.inputs = combine.inputs;
  whole.inputs.insert(whole.inputs.end(), op.inputs.begin() + 1, op.inputs.end());
  trace.recomputed.insert(combine.id);
  trace.kinds.insert(combine.kind);
  return whole;
}

std::optional<model::Estimate> CaseInputs::estimate(const model::Op& judged,
                                                    const std::string& block,
                                                    const std::string& variant,
                                                    Trace& trace) {
  const model::Op op = with_skipped_combine(judged, trace);
  const auto inputs = gather<model::Estimate>(
      op,
      block,
      given,
      [&](const model::Op& inner, const OpInputs<model::Estimate>& inner_inputs) {
        return recompute_.stored(recompute_.estimate(inner, inner_inputs, variant));
      },
      trace);
  if (!inputs) {
    return std::nullopt;
  }
  return recompute_.estimate(op, *inputs, variant);
}

std::optional<model::TensorView> CaseInputs::computed(const model::Op& op,
                                                      const std::string& block,
                                                      const ComputeBits& compute) {
  Trace trace;
  const auto inputs = gather<model::TensorView>(
      op, block, [](const model::TensorView& t) { return t; }, compute, trace);
  return inputs ? std::optional(compute(op, *inputs)) : std::nullopt;
}

std::optional<model::TensorView> CaseInputs::bits(const model::Op& op, const std::string& block) {
  return computed(op, block, [&](const model::Op& inner, const OpInputs<model::TensorView>& inputs) {
    return recompute_.bits(inner, inputs);
  });
}

std::optional<model::TensorView> CaseInputs::exact(const model::Op& op, const std::string& block) {
  return computed(op, block, [&](const model::Op& inner, const OpInputs<model::TensorView>& inputs) {
    return recompute_.exact(inner, inputs);
  });
}

std::optional<model::Estimate> CaseInputs::value(const std::string& id, const std::string& block, Trace& trace) {
  return value_of<model::Estimate>(
      id,
      block,
      given,
      [&](const model::Op& inner, const OpInputs<model::Estimate>& inputs) {
        return recompute_.stored(recompute_.estimate(inner, inputs, ""));
      },
      trace);
}

bool CaseInputs::is_golden_step(const model::Op& op) const {
  if (values_.reduced(op.id) == nullptr || !values_.has_golden_bits(op.id)) {
    return false;
  }
  return std::ranges::all_of(op.inputs, [&](const std::string& id) {
    if (id == op.id) {  // the cache before this step: rows of this one
      return true;
    }
    const size_t star = id.find('*');
    if (star == std::string::npos) {
      return values_.has_golden_bits(id);
    }
    return std::ranges::all_of(experts_.at(id), [&](int64_t expert) {
      std::string part = id;
      part.replace(star, 1, std::to_string(expert));
      return values_.has_golden_bits(part);
    });
  });
}

}  // namespace golden
