#include "model/list_builder.hpp"

#include <utility>

#include "model/check.hpp"
#include "model/tensor_catalog.hpp"

namespace model {

ListBuilder::ListBuilder(const ModelConfig& config, const Workload& workload)
    : config_(config), workload_(workload), tokens_(workload.num_tokens()) {
  for (const CatalogTensor& tensor : tensor_catalog(config)) {
    const int64_t bytes = num_elements(tensor.shape) * dtype_bytes(tensor.dtype);
    weights_[tensor.name] = {tensor.shape, bytes, tensor.scale};
  }
}

std::string ListBuilder::add(Op op) {
  op.layer = layer_;
  for (const std::string& name : op.weights) {
    op.weight_bytes += op.num_parts > 1 ? weight_bytes(with_expert(name, 0)) * op.num_parts : weight_bytes(name);
  }
  const int64_t output_rows = op.num_parts > 1 ? routed_rows() : op.shape.front();
  Shape output = op.shape;
  output.front() = output_rows;
  const int64_t output_bytes = num_elements(output) * dtype_bytes(op.dtype);
  op.activation_bytes += output_bytes;
  for (const std::string& input : op.inputs) {
    op.activation_bytes += input_bytes(op, input);
  }
  value_bytes_[op.id] = output_bytes;
  row_bytes_[op.id] = output_bytes / output_rows;
  ops_.push_back(std::move(op));
  return ops_.back().id;
}

std::string ListBuilder::norm(const std::string& id, Ids inputs, const std::string& weight, int64_t hidden) {
  return add({.id = id,
              .kind = OpKind::kRmsNorm,
              .inputs = std::move(inputs),
              .weights = {weight},
              .shape = {tokens_, hidden}});
}

std::string ListBuilder::linear(const std::string& id,
                                const std::string& input,
                                const std::string& weight,
                                int64_t rows) {
  const int64_t out_dim = weight_shape(weight)[0];
  return add({.id = id,
              .kind = OpKind::kLinear,
              .inputs = {input},
              .weights = {weight},
              .shape = {rows, out_dim},
              .flops = 2 * rows * out_dim * weight_shape(weight)[1]});
}

std::string ListBuilder::linear(const std::string& id, const std::string& input, const std::string& weight) {
  return linear(id, input, weight, tokens_);
}

std::string ListBuilder::expert_linear(const std::string& id, Ids inputs, const std::string& weight) {
  const Shape& shape = weight_shape(with_expert(weight, 0));
  return add({.id = id,
              .kind = OpKind::kLinear,
              .inputs = std::move(inputs),
              .weights = {weight},
              .shape = {-1, shape[0]},
              .num_parts = config_.n_routed_experts,
              .flops = 2 * routed_rows() * shape[0] * shape[1]});
}

std::string ListBuilder::swiglu(const std::string& id, const std::string& gate, const std::string& up, int64_t dim) {
  return add({.id = id, .kind = OpKind::kSwiglu, .inputs = {gate, up}, .shape = {tokens_, dim}});
}

int64_t ListBuilder::weight_bytes(const std::string& name) const {
  const Weight& weight = find_weight(name);
  return weight.bytes + (weight.scale.empty() ? 0 : find_weight(weight.scale).bytes);
}

const ListBuilder::Weight& ListBuilder::find_weight(const std::string& name) const {
  const auto found = weights_.find(name);
  if (found == weights_.end()) {
    throw_check_error(__FILE__, __LINE__, "not in the catalogue: " + name);
  }
  return found->second;
}

void ListBuilder::give(const std::string& id, int64_t row_len) {
  row_bytes_[id] = row_len * dtype_bytes(DType::kBF16);
  value_bytes_[id] = tokens_ * row_bytes_[id];
}

int64_t ListBuilder::input_bytes(const Op& op, const std::string& input) const {
  if (input.starts_with("cache.")) {
    return 0;
  }
  if (const auto found = value_bytes_.find(input); found != value_bytes_.end()) {
    const bool gathered =
        op.num_parts > 1 && op.kind == OpKind::kLinear && op.inputs.size() == 2 && input != op.inputs.back();
    return gathered ? routed_rows() * row_bytes_.at(input) : found->second;
  }
  return tokens_ * dtype_bytes(DType::kI32);  // token ids
}

std::string with_expert(std::string name, int64_t expert) {
  const size_t star = name.find('*');
  CHECK(star != std::string::npos);
  return name.replace(star, 1, std::to_string(expert));
}

}  // namespace model
