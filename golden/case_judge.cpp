#include "golden/case_judge.hpp"

#include <algorithm>
#include <cmath>

#include "golden/expanded_cache.hpp"
#include "golden/metrics.hpp"
#include "golden/runs.hpp"

namespace golden {
namespace {

std::vector<int64_t> coordinate_of(const model::Shape& shape, int64_t index) {
  std::vector<int64_t> coordinate(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    coordinate[d] = index % shape[d];
    index /= shape[d];
  }
  return coordinate;
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
      with_oracle_ratio_(with_oracle_ratio),
      inputs_(config, values, workload, recompute) {}

std::optional<double> CaseJudge::oracle_ratio(const model::Op& op, const model::TensorView& got) {
  for (const std::string& block : blocks_of(op)) {
    const auto own = inputs_.bits(op, block);
    const auto exact = inputs_.exact(op, block);
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
  auto own = inputs_.estimate(op, block, "", trace);
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
          test_tensor(recompute_, kept_rows(op, *inputs_.estimate(op, block, name, ignored), got), got, num_sigmas_);
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
  const auto own_bits = inputs_.bits(op, block);
  const bool same = own_bits && own_bits->dtype == got.dtype && std::ranges::equal(own_bits->bytes, got.bytes);
  result.status = same ? OpStatus::kSame : OpStatus::kOrder;
}

void CaseJudge::judge_choice(const model::Op& op,
                             const std::string& block,
                             const model::TensorView& got,
                             OpResult& result) {
  Trace trace;
  const auto scores = inputs_.value(op.inputs.front(), block, trace);
  if (!scores) {
    result.reason = "needs " + trace.missing;
    return;
  }
  spanned_.insert(trace.recomputed.begin(), trace.recomputed.end());
  const model::TensorView* kept_groups = nullptr;
  if (op.inputs.size() == 2) {
    spanned_.insert(op.inputs[1]);  // the kept groups are part of the choice, given or not
    kept_groups = inputs_.usable(op.inputs[1], trace);
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

OpResult CaseJudge::judge_op(const model::Op& op, const model::TensorView& got) {
  OpResult result{.case_name = values_.step().name, .op = op.id};
  if (op.id.ends_with(".attn.kv_b") && got.num_rows() == workload_.num_tokens() && op.shape.front() != got.num_rows()) {
    // A form that caches expanded keys and values: only the new rows were computed, from the new latents.
    model::Op new_rows = op;
    new_rows.shape.front() = got.num_rows();
    new_rows.inputs = {op.id.substr(0, op.id.rfind('.')) + ".kv_a_norm"};
    return judge_op(new_rows, got);
  }
  if (const std::string problem = inputs_.malformed(op, got); !problem.empty()) {
    result.status = OpStatus::kDiverged;
    result.divergence = Divergence{.op = op.id, .case_name = result.case_name, .reason = problem};
    return result;
  }
  compare_free(op, got, result);
  if (with_oracle_ratio_ && !is_choice(op)) {
    result.oracle_ratio = oracle_ratio(op, got);
  }
  if (inputs_.is_golden_step(op)) {
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
  for (const model::Op& op : inputs_.ops()) {
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
