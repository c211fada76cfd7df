#include "golden/case_judge.hpp"

#include <algorithm>
#include <cmath>

#include "golden/expanded_cache.hpp"
#include "golden/metrics.hpp"
#include "golden/runs.hpp"

namespace golden {
namespace {

model::Estimate given(const model::TensorView& tensor) {
  auto values = model::to_double(tensor);
  std::vector<double> errors(values.size(), 0.0);
  return {tensor.shape, std::move(values), std::move(errors), tensor.dtype};
}

std::vector<int64_t> coordinate_of(const model::Shape& shape, int64_t index) {
  std::vector<int64_t> coordinate(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    coordinate[d] = index % shape[d];
    index /= shape[d];
  }
  return coordinate;
}

bool is_choice(const model::Op& op) {
  return op.kind == model::OpKind::kRouterGroups || op.kind == model::OpKind::kRouterExperts;
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
  return dtype == model::DType::kF64 || dtype == model::DType::kF32 || dtype == model::DType::kBF16;
}

}  // namespace

CaseJudge::CaseJudge(const model::ModelConfig& config,
                     const CaseValues& values,
                     const model::Workload& workload,
                     const Recompute& recompute,
                     double num_sigmas,
                     bool with_oracle_ratio)
    : config_(config),
      values_(values),
      workload_(workload),
      recompute_(recompute),
      num_sigmas_(num_sigmas),
      with_oracle_ratio_(with_oracle_ratio) {
  expand(model::op_list(config, workload));
}

// Grouped ops become the parts of the experts that the dump's routing (else the golden's) visits.
void CaseJudge::expand(const std::vector<model::Op>& ops) {
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

std::string CaseJudge::malformed(const model::Op& op, const model::TensorView& tensor) const {
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
           (is_choice(op) ? ", expected I32" : ", expected F64, F32 or BF16");
  }
  return "";
}

const model::TensorView* CaseJudge::usable(const std::string& id, Trace& trace) const {
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
std::optional<Tensor> CaseJudge::value_of(
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
std::optional<OpInputs<Tensor>> CaseJudge::gather(
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
model::Op CaseJudge::with_skipped_combine(const model::Op& op, Trace& trace) const {
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

std::optional<model::Estimate> CaseJudge::estimate(const model::Op& judged,
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

std::optional<model::TensorView> CaseJudge::computed(const model::Op& op,
                                                     const std::string& block,
                                                     const ComputeBits& compute) {
  Trace trace;
  const auto inputs = gather<model::TensorView>(
      op, block, [](const model::TensorView& t) { return t; }, compute, trace);
  return inputs ? std::optional(compute(op, *inputs)) : std::nullopt;
}

std::optional<model::TensorView> CaseJudge::bits(const model::Op& op, const std::string& block) {
  return computed(op, block, [&](const model::Op& inner, const OpInputs<model::TensorView>& inputs) {
    return recompute_.bits(inner, inputs);
  });
}

std::optional<double> CaseJudge::oracle_ratio(const model::Op& op, const model::TensorView& got) {
  for (const std::string& block : blocks_of(op)) {
    const auto own = bits(op, block);
    const auto exact = computed(op, block, [&](const model::Op& inner, const OpInputs<model::TensorView>& inputs) {
      return recompute_.exact(inner, inputs);
    });
    if (!own || !exact || exact->shape != got.shape) {
      continue;
    }
    const auto expected = model::to_double(*exact);
    const auto error_of = [&](const model::TensorView& tensor) {
      const auto values = model::to_double(tensor);
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        sum += (values[i] - expected[i]) * (values[i] - expected[i]);
      }
      return std::sqrt(sum);
    };
    const double of_got = error_of(got);
    const double of_own = error_of(*own);
    return of_own == of_got ? 1 : of_got / of_own;
  }
  return std::nullopt;
}

model::Estimate CaseJudge::kept_rows(const model::Op& op,
                                     model::Estimate estimate,
                                     const model::TensorView& got) const {
  const auto& rows = values_.step().rows;
  const bool cut =
      (op.id == "final_norm" || op.id == "logits") && !rows.empty() && got.num_rows() != estimate.shape.front();
  if (!cut || got.num_rows() != static_cast<int64_t>(rows.size())) {
    return estimate;
  }
  const auto len = static_cast<int64_t>(estimate.value.size()) / estimate.shape.front();
  model::Estimate kept{estimate.shape, {}, {}, estimate.dtype};
  kept.shape.front() = got.num_rows();
  for (const int64_t row : rows) {
    kept.value.insert(kept.value.end(), estimate.value.begin() + row * len, estimate.value.begin() + (row + 1) * len);
    kept.error.insert(kept.error.end(), estimate.error.begin() + row * len, estimate.error.begin() + (row + 1) * len);
  }
  return kept;
}

Divergence CaseJudge::divergence(const model::Op& op, const Trace& trace) const {
  Divergence result{.op = op.id, .case_name = values_.step().name, .reads = trace.reads};
  std::sort(result.reads.begin(), result.reads.end());
  result.reads.erase(std::unique(result.reads.begin(), result.reads.end()), result.reads.end());
  return result;
}

void CaseJudge::judge_values(const model::Op& op,
                             const std::string& block,
                             const model::TensorView& got,
                             OpResult& result) {
  Trace trace;
  auto own = estimate(op, block, "", trace);
  if (!own) {
    result.reason = "needs " + trace.missing;
    return;
  }
  trace.kinds.insert(op.kind);
  const TensorTest test = test_tensor(recompute_, kept_rows(op, std::move(*own), got), got, num_sigmas_);
  TensorTest best = test;
  std::string variant = test.wider ? "wider-dtype" : "";
  // A rule that stores what the dump stores explains more than a wider container does.
  if (!test.holds || test.wider) {
    for (const std::string& name : recompute_.variants(trace.kinds)) {
      Trace ignored;
      const TensorTest other =
          test_tensor(recompute_, kept_rows(op, *estimate(op, block, name, ignored), got), got, num_sigmas_);
      if (other.holds && (!best.holds || !other.wider)) {
        best = other;
        variant = name + (other.wider ? "+wider-dtype" : "");
        if (!other.wider) {
          break;
        }
      }
    }
  }
  spanned_.insert(trace.recomputed.begin(), trace.recomputed.end());
  result.max_bound_use = best.max_bound_use;
  result.max_ulp = best.max_ulp;
  result.bias_z = best.bias_z;
  if (!best.holds) {
    result.status = OpStatus::kDiverged;
    result.divergence = divergence(op, trace);
    result.divergence->reason = test.reason;
    if (test.worst >= 0) {
      result.divergence->coordinate = coordinate_of(got.shape, test.worst);
      result.divergence->token = result.divergence->coordinate.front();
      result.divergence->got = test.got;
      result.divergence->expected = test.expected;
      result.divergence->bound = test.bound;
    }
    return;
  }
  if (!variant.empty()) {
    result.status = OpStatus::kVariant;
    result.variant = variant;
    return;
  }
  const auto own_bits = bits(op, block);
  const bool same = own_bits && own_bits->dtype == got.dtype && std::ranges::equal(own_bits->bytes, got.bytes);
  result.status = same ? OpStatus::kSame : OpStatus::kOrder;
}

void CaseJudge::judge_choice(const model::Op& op,
                             const std::string& block,
                             const model::TensorView& got,
                             OpResult& result) {
  Trace trace;
  const auto scores = value_of<model::Estimate>(
      op.inputs.front(),
      block,
      given,
      [&](const model::Op& inner, const OpInputs<model::Estimate>& inputs) {
        return recompute_.stored(recompute_.estimate(inner, inputs, ""));
      },
      trace);
  if (!scores) {
    result.reason = "needs " + trace.missing;
    return;
  }
  spanned_.insert(trace.recomputed.begin(), trace.recomputed.end());
  const model::TensorView* kept_groups = nullptr;
  if (op.inputs.size() == 2) {
    spanned_.insert(op.inputs[1]);  // the kept groups are part of the choice, given or not
    kept_groups = usable(op.inputs[1], trace);
    if (kept_groups != nullptr) {
      trace.reads.push_back(op.inputs[1]);
    }
  }
  const auto choices = recompute_.judge_choice(op, *scores, kept_groups, got);
  result.status = OpStatus::kSame;
  int64_t flips = 0;
  for (size_t t = 0; t < choices.size(); ++t) {
    const auto& choice = choices[t];
    if (choice.kind == ChoiceResult::Kind::kWrong) {
      const auto row = model::slice_rows(got, static_cast<int64_t>(t), static_cast<int64_t>(t) + 1).codes<int32_t>();
      const auto differs = std::mismatch(row.begin(), row.end(), choice.expected.begin()).first - row.begin();
      result.status = OpStatus::kDiverged;
      result.divergence = divergence(op, trace);
      result.divergence->token = static_cast<int64_t>(t);
      result.divergence->coordinate = {static_cast<int64_t>(t), differs};
      result.divergence->got = row[static_cast<size_t>(differs)];
      result.divergence->expected = choice.expected[static_cast<size_t>(differs)];
      result.divergence->reason = choice.reason;
      return;
    }
    if (choice.kind == ChoiceResult::Kind::kFlip) {
      ++flips;
      result.status = OpStatus::kFlip;
      result.reason =
          fmt::format("{} of {} tokens; best outsider ranked {}", flips, choices.size(), choice.outsider_rank + 1);
    } else if (choice.kind == ChoiceResult::Kind::kReordered && result.status == OpStatus::kSame) {
      result.status = OpStatus::kOrder;
    }
  }
}

void CaseJudge::compare_free(const model::Op& op, const model::TensorView& got, OpResult& result) const {
  const auto* recorded = values_.golden(op.id);
  if (recorded == nullptr) {
    compare_reduced(op, got, result);
    return;
  }
  if (recorded->shape != got.shape) {
    result.free_status = "differs";
    return;
  }
  const auto metrics = compare_values(model::to_double(*recorded), model::to_double(got), recorded->dtype);
  result.free_status = metrics.equal_frac == 1 ? "same" : "differs";
  if (is_choice(op)) {
    return;  // ids have no angle
  }
  result.cosine = metrics.cosine;
  result.calc_diff = metrics.calc_diff;
}

void CaseJudge::compare_reduced(const model::Op& op, const model::TensorView& got, OpResult& result) const {
  if (values_.reduced(op.id) == nullptr) {
    return;
  }
  result.free_status = values_.has_golden_bits(op.id) ? "same" : "differs";
  const auto* sample = values_.sample(op.id);
  if (sample == nullptr || is_choice(op) || values_.reduced(op.id)->shape != got.shape) {
    return;
  }
  const auto values = model::to_double(got);
  std::vector<double> sampled;
  for (const int64_t place : sample_places(got.size())) {
    sampled.push_back(values[static_cast<size_t>(place)]);
  }
  const auto metrics = compare_values(model::to_double(*sample), sampled, sample->dtype);
  result.cosine = metrics.cosine;
  result.calc_diff = metrics.calc_diff;
}

bool CaseJudge::is_golden_step(const model::Op& op) const {
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

OpResult CaseJudge::judge_op(const model::Op& op, const model::TensorView& got) {
  OpResult result{.case_name = values_.step().name, .op = op.id};
  if (op.id.ends_with(".attn.kv_b") && got.num_rows() == workload_.num_tokens() && op.shape.front() != got.num_rows()) {
    // A form that caches expanded keys and values: only the new rows were computed, from the new latents.
    model::Op new_rows = op;
    new_rows.shape.front() = got.num_rows();
    new_rows.inputs = {op.id.substr(0, op.id.rfind('.')) + ".kv_a_norm"};
    return judge_op(new_rows, got);
  }
  if (const std::string problem = malformed(op, got); !problem.empty()) {
    result.status = OpStatus::kDiverged;
    result.divergence = Divergence{.op = op.id, .case_name = result.case_name, .reason = problem};
    return result;
  }
  compare_free(op, got, result);
  if (with_oracle_ratio_ && !is_choice(op)) {
    result.oracle_ratio = oracle_ratio(op, got);
  }
  if (is_golden_step(op)) {
    result.status = OpStatus::kSame;
    return result;
  }
  for (const std::string& block : blocks_of(op)) {
    is_choice(op) ? judge_choice(op, block, got, result) : judge_values(op, block, got, result);
    if (result.status != OpStatus::kUndecided) {
      result.reason = result.status == OpStatus::kFlip ? result.reason : "";
      break;
    }
  }
  return result;
}

std::vector<OpResult> CaseJudge::judge() {
  std::vector<OpResult> results;
  for (const model::Op& op : ops_) {
    if (const auto* got = values_.find(op.id); got != nullptr) {
      results.push_back(judge_op(op, *got));
    } else if (!may_be_absent(op)) {
      results.push_back(
          {.case_name = values_.step().name, .op = op.id, .status = OpStatus::kMissing, .reason = "not in the dump"});
    }
    if (op.kind == model::OpKind::kCacheLatent) {
      const std::string prefix = op.inputs.front().substr(0, op.inputs.front().rfind(".attn."));
      std::ranges::move(judge_expanded_cache(config_, values_, op.layer, prefix), std::back_inserter(results));
    }
  }
  std::erase_if(results,
                [this](const OpResult& r) { return r.status == OpStatus::kMissing && spanned_.contains(r.op); });
  return results;
}

}  // namespace golden
