#include "tools/infer/device_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/atomic_file.hpp"
#include "model/check.hpp"
#include "model/chrome_trace.hpp"
#include "version.hpp"

namespace tools {

using nlohmann::json;

DeviceTrace::DeviceTrace(const std::string& path, const model::ModelConfig& config, std::string config_hash)
    : path_(path), config_(config), config_hash_(std::move(config_hash)) {
  if (!path.ends_with(".csv") && !path.ends_with(".json")) {
    model::throw_input_error("--trace {}: expected a name that ends with .csv (op records) or .json (Chrome trace)",
                             path);
  }
  const model::AtomicFile probe(path);  // a place that cannot be written is said now
}

std::vector<gpu::OpTime>* DeviceTrace::enter_step(const gpu::StepInfo& step) {
  steps_.push_back({step, {}, 0});
  return &steps_.back().times;
}

namespace {

// Of the average sequence; a data-parallel rank may have none in a step.
int64_t context_len_of(const model::Workload& workload) {
  return (workload.num_keys() - workload.num_tokens()) / std::max<int64_t>(1, std::ssize(workload.sequences));
}

using Ops = std::map<std::string, model::Op>;

// Of both forms of attention: in a step that prefills, some sequences may decode. A rank without tokens in a step has the ops of one
// token, without costs: what it computes for others is theirs.
Ops ops_of(const model::ModelConfig& config, model::Workload workload) {
  const bool is_idle = workload.num_tokens() == 0;
  if (is_idle) {
    workload.sequences = {{0, 1}};
  }
  Ops ops;
  for (const auto form : {workload.attention_form, model::AttentionForm::kExpanded, model::AttentionForm::kAbsorbed}) {
    workload.attention_form = form;
    for (model::Op& op : model::op_list(config, workload)) {
      if (is_idle) {
        op.flops = op.weight_bytes = op.activation_bytes = op.kv_bytes = 0;
      }
      ops.emplace(op.id, op);
    }
  }
  return ops;
}

// What goes between ranks before the experts of a layer is no op of the list.
const std::string kDispatch = "dispatch";

bool is_dispatch(const std::string& id) {
  return id.ends_with("." + kDispatch);
}

model::Op op_of(const Ops& ops, const std::string& id) {
  if (!is_dispatch(id)) {
    return ops.at(id);
  }
  const std::string router = id.substr(0, id.size() - kDispatch.size()) + "topk_ids";
  return {.id = id, .kind = model::OpKind::kRouterExperts, .layer = ops.at(router).layer};
}

}  // namespace

std::string DeviceTrace::pack() const {
  json steps = json::array();
  for (const Step& step : steps_) {
    const model::Workload& workload = step.info.workload;
    json sequences = json::array();
    for (const auto& [num_cached, num_new] : workload.sequences) {
      sequences.push_back({num_cached, num_new});
    }
    json times = json::array();
    for (const gpu::OpTime& time : step.times) {
      times.push_back({time.op, time.start_us, time.time_us});
    }
    steps.push_back({{"sequences", std::move(sequences)},
                     {"expanded", workload.attention_form == model::AttentionForm::kExpanded},
                     {"mtp_layer", workload.only_mtp_layer ? json(*workload.only_mtp_layer) : json(nullptr)},
                     {"prefills", step.info.prefills},
                     {"times", std::move(times)}});
  }
  return steps.dump();
}

void DeviceTrace::unpack_ranks(const std::vector<std::string>& packed) {
  steps_.clear();
  num_ranks_ = std::ssize(packed);
  for (int64_t rank = 0; rank < num_ranks_; ++rank) {
    for (const json& from : json::parse(packed[static_cast<size_t>(rank)])) {
      Step& step = steps_.emplace_back();
      step.rank = rank;
      step.info.prefills = from["prefills"].get<bool>();
      model::Workload& workload = step.info.workload;
      workload.attention_form =
          from["expanded"].get<bool>() ? model::AttentionForm::kExpanded : model::AttentionForm::kAbsorbed;
      if (!from["mtp_layer"].is_null()) {
        workload.only_mtp_layer = from["mtp_layer"].get<int64_t>();
      }
      for (const json& sequence : from["sequences"]) {
        workload.sequences.push_back({sequence[0].get<int64_t>(), sequence[1].get<int64_t>()});
      }
      for (const json& time : from["times"]) {
        step.times.push_back({time[0].get<std::string>(), time[1].get<double>(), time[2].get<double>()});
      }
    }
  }
}

std::vector<model::OpRecord> DeviceTrace::records_of(const Step& step) const {
  const model::Workload& workload = step.info.workload;
  const auto ops = ops_of(config_, workload);
  std::vector<model::OpRecord> records;
  for (const gpu::OpTime& time : step.times) {
    const model::Op op = op_of(ops, time.op);
    records.push_back({.op = op.id,
                       .kind = is_dispatch(op.id) ? kDispatch : std::string(model::op_kind_name(op.kind)),
                       .layer = op.layer,
                       .phase = step.info.prefills ? "prefill" : "decode",
                       .rank = step.rank,
                       .tokens = workload.num_tokens(),
                       .batch = static_cast<int64_t>(workload.sequences.size()),
                       .context_len = context_len_of(workload),
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
  model::ChromeTrace trace{.processes = {}, .spans = {}};
  for (int64_t rank = 0; rank < num_ranks_; ++rank) {
    trace.processes.push_back({num_ranks_ == 1 ? "device" : fmt::format("rank {}", rank), {"stream"}});
  }
  for (const Step& step : steps_) {
    const auto tokens = static_cast<double>(step.info.workload.num_tokens());
    for (const gpu::OpTime& time : step.times) {
      trace.spans.push_back({.process = step.rank,
                             .name = time.op,
                             .start_us = time.start_us,
                             .duration_us = time.time_us,
                             .details = {{"tokens", tokens}}});
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
  if (num_ranks_ > 1) {
    file.header.push_back(
        "costs are those of the whole op for the tokens of the row's rank, whatever share of it the rank computes");
  }
  for (const Step& step : steps_) {
    auto records = records_of(step);
    std::move(records.begin(), records.end(), std::back_inserter(file.records));
  }
  model::write_op_records(path_, file);
}

}  // namespace tools
