#include "tools/infer/device_trace.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "model/atomic_file.hpp"
#include "model/check.hpp"
#include "model/chrome_trace.hpp"
#include "version.hpp"

namespace tools {

DeviceTrace::DeviceTrace(const std::string& path, const model::ModelConfig& config, std::string config_hash)
    : path_(path), config_(config), config_hash_(std::move(config_hash)) {
  if (!path.ends_with(".csv") && !path.ends_with(".json")) {
    model::throw_input_error("--trace {}: expected a name that ends with .csv (op records) or .json (Chrome trace)",
                             path);
  }
  const model::AtomicFile probe(path);  // a place that cannot be written is said now
}

std::vector<gpu::OpTime>* DeviceTrace::enter_step(const gpu::StepInfo& step) {
  steps_.push_back(std::make_unique<Step>(Step{step, {}}));
  return &steps_.back()->times;
}

std::vector<model::OpRecord> DeviceTrace::records_of(const Step& step) const {
  model::Workload workload = step.info.workload;
  std::map<std::string, model::Op> ops;  // of both forms: in a step that prefills, some sequences may decode
  for (const auto form : {workload.attention_form, model::AttentionForm::kExpanded, model::AttentionForm::kAbsorbed}) {
    workload.attention_form = form;
    for (model::Op& op : model::op_list(config_, workload)) {
      ops.emplace(op.id, op);
    }
  }
  std::vector<model::OpRecord> records;
  for (const gpu::OpTime& time : step.times) {
    const model::Op& op = ops.at(time.op);
    records.push_back({.op = op.id,
                       .kind = std::string(model::op_kind_name(op.kind)),
                       .layer = op.layer,
                       .phase = step.info.prefills ? "prefill" : "decode",
                       .tokens = workload.num_tokens(),
                       .batch = static_cast<int64_t>(workload.sequences.size()),
                       .context_len = (workload.num_keys() - workload.num_tokens()) / std::ssize(workload.sequences),
                       .dtype = std::string(model::dtype_name(op.dtype)),
                       .flops = op.flops,
                       .weight_bytes = op.weight_bytes,
                       .activation_bytes = op.activation_bytes,
                       .kv_bytes = op.kv_bytes,
                       .time_us = time.time_us,
                       .time_us_p10 = {},
                       .time_us_p90 = {},
                       .repetitions = 1,
                       .source = model::RecordSource::kEmulated,
                       .device = "emulated",
                       .clock_mhz = {},
                       .config_hash = config_hash_,
                       .commit = DSV3_COMMIT});
  }
  return records;
}

std::string DeviceTrace::chrome_trace() const {
  model::ChromeTrace trace{.processes = {{"device", {"stream"}}}, .spans = {}};
  for (const auto& step : steps_) {
    const auto tokens = static_cast<double>(step->info.workload.num_tokens());
    for (const gpu::OpTime& time : step->times) {
      trace.spans.push_back(
          {.name = time.op, .start_us = time.start_us, .duration_us = time.time_us, .details = {{"tokens", tokens}}});
    }
  }
  return trace.json();
}

void DeviceTrace::write() {
  if (path_.ends_with(".json")) {
    const std::string text = chrome_trace();
    model::AtomicFile file(path_);
    file.write(std::as_bytes(std::span(text)));
    file.commit();
    return;
  }
  model::OpRecordFile file{
      .header = {"times of an emulated device: of this CPU, not of a GPU; a row is one launch, under the op that "
                 "gives it its cost"},
      .records = {}};
  for (const auto& step : steps_) {
    auto records = records_of(*step);
    std::move(records.begin(), records.end(), std::back_inserter(file.records));
  }
  model::write_op_records(path_, file);
}

}  // namespace tools
