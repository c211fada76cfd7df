#include "tools/op_trace.hpp"

#include <algorithm>
#include <cmath>

#include "model/config_hash.hpp"

namespace tools {
namespace {

double quantile_of(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(std::llround(share * static_cast<double>(values.size() - 1)))];
}

// "layer.3.moe.expert.7.gate" -> "layer.3.moe.expert.*.gate"
std::string group_id(const model::Op& op) {
  if (op.expert < 0) {
    return op.id;
  }
  constexpr std::string_view kExpert = ".expert.";
  const size_t begin = op.id.find(kExpert) + kExpert.size();
  return op.id.substr(0, begin) + "*" + op.id.substr(std::min(op.id.find('.', begin), op.id.size()));
}

}  // namespace

void OpTrace::enter_step(std::vector<reference::RowOrigin> rows) {
  bool is_prefill = true;
  workload_ = {};
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& [request, position] = rows[i];
    if (i == 0 || rows[i - 1].request != request) {
      workload_.sequences.push_back({.num_cached = position, .num_new = 0});
    }
    ++workload_.sequences.back().num_new;
    is_prefill = is_prefill && position < prompt_lens_.at(static_cast<size_t>(request));
  }
  kind_ = {.phase = is_prefill ? "prefill" : "decode",
           .tokens = workload_.num_tokens(),
           .batch = std::ssize(workload_.sequences)};
  is_new_step_ = true;
  last_ = std::chrono::steady_clock::now();
}

void OpTrace::see(const model::Op& op, const model::TensorView&) {
  const auto now = std::chrono::steady_clock::now();
  if (is_new_step_) {
    kind_.is_draft = op.id.starts_with("mtp.");
    steps_[kind_].workloads.push_back(workload_);
    is_new_step_ = false;
  }
  Steps& steps = steps_[kind_];
  if (op.kind == model::OpKind::kQueryLatent) {
    steps.workloads.back().attention_form = model::AttentionForm::kAbsorbed;
  }
  if (op.id.starts_with("mtp.")) {
    auto& workload = steps.workloads.back();
    workload.num_mtp_layers = std::max<int64_t>(workload.num_mtp_layers, 1);
  }
  const std::string id = group_id(op);
  const auto [place, is_new] = steps.ops.try_emplace(id);
  if (is_new) {
    steps.order.push_back(id);
    place->second.layer = op.layer;
  }
  TimedOp& timed = place->second;
  if (is_new || timed.last_step != steps.workloads.size()) {
    timed.time_us.push_back(0);
    timed.num_parts.push_back(0);
    timed.last_step = steps.workloads.size();
  }
  timed.time_us.back() += std::chrono::duration<double, std::micro>(now - last_).count();
  timed.num_parts.back() += 1;
  last_ = std::chrono::steady_clock::now();
}

std::vector<model::OpRecord> OpTrace::records(const model::ModelConfig& config, const model::OpRecord& shared) const {
  std::vector<model::OpRecord> records;
  for (const auto& [kind, steps] : steps_) {
    model::Workload workload = steps.workloads[steps.workloads.size() / 2];
    workload.num_mtp_layers = std::min(workload.num_mtp_layers, config.num_nextn_predict_layers);
    int64_t cached = 0;
    for (const auto& sequence : workload.sequences) {
      cached += sequence.num_cached;
    }
    std::map<std::string, model::Op> list;
    for (model::Op& op : model::op_list(config, workload)) {
      list.emplace(op.id, std::move(op));
    }
    for (const std::string& id : steps.order) {
      const TimedOp& timed = steps.ops.at(id);
      model::OpRecord record = shared;
      record.op = id;
      record.layer = timed.layer;
      record.phase = kind.phase;
      record.tokens = kind.tokens;
      record.batch = kind.batch;
      record.context_len = cached / kind.batch;
      record.time_us = quantile_of(timed.time_us, 0.5);
      record.time_us_p10 = quantile_of(timed.time_us, 0.1);
      record.time_us_p90 = quantile_of(timed.time_us, 0.9);
      record.repetitions = std::ssize(timed.time_us);
      record.config_hash = model::config_hash(config);
      if (const auto found = list.find(id); found != list.end()) {
        const model::Op& op = found->second;
        const double read = quantile_of(timed.num_parts, 0.5) / static_cast<double>(op.num_parts);
        record.kind = std::string(model::op_kind_name(op.kind));
        const bool is_fp8 = op.kind == model::OpKind::kLinear && config.quantization;
        record.dtype = std::string(model::dtype_name(is_fp8 ? model::DType::kF8E4M3 : model::DType::kBF16));
        record.flops = op.flops;
        record.weight_bytes = std::llround(static_cast<double>(op.weight_bytes) * std::min(1.0, read));
        record.activation_bytes = op.activation_bytes;
        record.kv_bytes = op.kv_bytes;
      }
      records.push_back(std::move(record));
    }
  }
  return records;
}

}  // namespace tools
