#include "tools/op_pack/bench.hpp"

#include <cmath>

namespace tools::op_pack {
namespace {

// docs/bounds.md with one rule: 2 m exp(-k^2 / 2) = 1e-9 for m = 2^24 elements, more than any pack of usual size has.
double num_sigmas() {
  return std::sqrt(2 * std::log(2e9 * 0x1p24));
}

}  // namespace

nlohmann::ordered_json ShapeValues::json() const {
  nlohmann::ordered_json result = nlohmann::ordered_json::object();
  for (const auto& [key, values] : values_) {
    result[key] = values.size() == 1 ? nlohmann::ordered_json(values.front()) : nlohmann::ordered_json(values);
  }
  return result;
}

model::TensorView MemoryWeights::weight(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    model::throw_check_error(__FILE__, __LINE__, "no weight " + name);
  }
  return found->second;
}

Value given_value(const model::TensorView& tensor) {
  return {tensor, reference::given(tensor), true};
}

Value reshaped(Value value, const model::Shape& shape) {
  value.stored = model::reshape(value.stored, shape);
  value.estimate.shape = shape;
  return value;
}

Value Bench::run(const model::Op& op,
                 const std::vector<Value>& inputs,
                 const model::Workload& workload,
                 const std::vector<Value>& expert_outputs) const {
  reference::OpCall call{
      .rules = rules, .workload = workload, .weights = weights, .op = op, .num_threads = request.num_threads};
  reference::EstimateCall estimate_call{.rules = rules,
                                        .workload = workload,
                                        .weights = weights,
                                        .op = op,
                                        .num_sigmas = num_sigmas(),
                                        .num_threads = request.num_threads};
  const auto estimate_of = [](const Value& value) {
    return value.is_given ? value.estimate : reference::rounded(value.estimate);
  };
  for (const Value& input : inputs) {
    call.inputs.push_back(input.stored);
    estimate_call.inputs.push_back(estimate_of(input));
  }
  std::vector<model::TensorView> stored_outputs;
  for (const Value& output : expert_outputs) {
    stored_outputs.push_back(output.stored);
    estimate_call.expert_outputs.push_back(estimate_of(output));
  }
  call.expert_outputs = stored_outputs;
  return {reference::run_op(call), reference::estimate_op(estimate_call)};
}

model::TensorView Bench::bits(const model::Op& op, const std::vector<Value>& inputs) const {
  const model::Workload workload;
  reference::OpCall call{
      .rules = rules, .workload = workload, .weights = weights, .op = op, .num_threads = request.num_threads};
  for (const Value& input : inputs) {
    call.inputs.push_back(input.stored);
  }
  return reference::run_op(call);
}

}  // namespace tools::op_pack
