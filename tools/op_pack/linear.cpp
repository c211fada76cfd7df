// linear, grouped_linear and rms_norm: the kinds whose weights a layer of a checkpoint can give.
#include <numeric>

#include "tools/op_pack/kinds.hpp"

namespace tools::op_pack {
namespace {

using model::OpKind;
using model::Shape;

// Weight and scales under their names in the pack.
void add_weight(OpPack& pack, const Bench& bench) {
  const auto weight = bench.weights.weight("weight");
  pack.inputs.emplace_back("weight", weight);
  if (weight.dtype == model::DType::kF8E4M3) {
    pack.inputs.emplace_back("weight_scale", bench.weights.weight("weight_scale_inv"));
  }
}

// Tensors of one shape and dtype, one after the other under a new first extent.
model::TensorView stacked(const std::vector<model::TensorView>& parts) {
  auto bytes = std::make_shared<std::vector<std::byte>>();
  for (const auto& part : parts) {
    bytes->insert(bytes->end(), part.bytes.begin(), part.bytes.end());
  }
  Shape shape = parts.front().shape;
  shape.insert(shape.begin(), static_cast<int64_t>(parts.size()));
  return {parts.front().dtype, shape, *bytes, bytes};
}

// Rows of several results as one. `columns` for the case that there is no row at all.
Value joined(const std::vector<Value>& parts) {
  auto bytes = std::make_shared<std::vector<std::byte>>();
  Value result;
  result.estimate.dtype = parts.front().estimate.dtype;
  int64_t num_rows = 0;
  for (const Value& part : parts) {
    bytes->insert(bytes->end(), part.stored.bytes.begin(), part.stored.bytes.end());
    num_rows += part.stored.num_rows();
    auto& all = result.estimate;
    all.value.insert(all.value.end(), part.estimate.value.begin(), part.estimate.value.end());
    all.error.insert(all.error.end(), part.estimate.error.begin(), part.estimate.error.end());
  }
  result.estimate.shape = {num_rows, parts.front().stored.row_len()};
  result.stored = {parts.front().stored.dtype, result.estimate.shape, *bytes, bytes};
  return result;
}

}  // namespace

OpPack make_linear(Bench& bench) {
  model::Op op{.id = "layer.0.attn.q_a", .kind = OpKind::kLinear, .weights = {"weight"}};
  std::string name = "weight";
  if (bench.checkpoint != nullptr) {
    const auto original = checkpoint_op(bench, OpKind::kLinear, false);
    op.id = original.id;
    name = original.weights[0];
  }
  put_linear_weight(
      bench, "weight", name, bench.checkpoint == nullptr ? Shape{bench.shape["n"], bench.shape["k"]} : Shape{});
  const auto weight_shape = bench.weights.weight("weight").shape;
  bench.shape.set("n", {weight_shape[0]});
  bench.shape.set("k", {weight_shape[1]});
  const auto x = bench.samples.activations("x", {bench.shape["m"], weight_shape[1]});
  const Value y = bench.run(op, {given_value(x)});
  OpPack pack{{}, {{"x", x}}, {{"", y.stored, y.estimate}}};
  add_weight(pack, bench);
  pack.facts["op"] = op.id;
  return pack;
}

OpPack make_grouped_linear(Bench& bench) {
  const auto rows = bench.shape.list("rows");
  const auto num_experts = static_cast<int64_t>(rows.size());
  const int64_t num_rows = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  if (num_rows == 0) {
    model::throw_input_error("--shape rows: no expert has a row");
  }
  std::optional<model::Op> original;
  if (bench.checkpoint != nullptr) {
    original = checkpoint_op(bench, OpKind::kLinear, true);
    if (num_experts > bench.config().n_routed_experts) {
      model::throw_input_error(
          "--shape rows: {} experts, the checkpoint has {}", num_experts, bench.config().n_routed_experts);
    }
  }
  std::vector<model::TensorView> weights;
  std::vector<model::TensorView> scales;
  for (int64_t e = 0; e < num_experts; ++e) {
    const std::string as = "expert." + std::to_string(e);
    const bool random = !original;
    put_linear_weight(bench,
                      as,
                      random ? as : model::expert_part(*original, e).weights[0],
                      random ? Shape{bench.shape["n"], bench.shape["k"]} : Shape{});
    weights.push_back(bench.weights.weight(as));
    if (weights.back().dtype == model::DType::kF8E4M3) {
      scales.push_back(bench.weights.weight(as + "_scale_inv"));
    }
  }
  bench.shape.set("n", {weights[0].shape[0]});
  bench.shape.set("k", {weights[0].shape[1]});
  const auto x = bench.samples.activations("x", {num_rows, bench.shape["k"]});
  std::vector<Value> parts;
  int64_t begin = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t end = begin + rows[static_cast<size_t>(e)];
    if (end > begin) {
      const std::string as = "expert." + std::to_string(e);
      const model::Op op{.id = as, .kind = OpKind::kLinear, .weights = {as}, .expert = e};
      parts.push_back(bench.run(op, {given_value(model::slice_rows(x, begin, end))}));
    }
    begin = end;
  }
  const Value y = joined(parts);
  OpPack pack{{}, {{"x", x}, {"weight", stacked(weights)}}, {{"", y.stored, y.estimate}}};
  if (!scales.empty()) {
    pack.inputs.emplace_back("weight_scale", stacked(scales));
  }
  pack.inputs.emplace_back(
      "rows", model::make_tensor(model::DType::kI32, {num_experts}, std::vector<int32_t>(rows.begin(), rows.end())));
  return pack;
}

OpPack make_rms_norm(Bench& bench) {
  model::Op op{.id = "norm", .kind = OpKind::kRmsNorm, .weights = {"gain"}};
  if (bench.checkpoint != nullptr) {
    const auto original = checkpoint_op(bench, OpKind::kRmsNorm, false);
    op.id = original.id;
    bench.weights.put("gain", bench.checkpoint->weight(original.weights[0]));
    bench.shape.set("hidden", {bench.weights.weight("gain").shape[0]});
  } else {
    bench.weights.put("gain", bench.samples.bf16_weight("gain", {bench.shape["hidden"]}, 1, 0.2));
  }
  const Shape shape{bench.shape["tokens"], bench.shape["hidden"]};
  const auto x = bench.samples.activations("x", shape);
  OpPack pack{{}, {{"x", x}, {"gain", bench.weights.weight("gain")}}, {}};
  if (bench.shape["residual"] == 0) {
    const Value y = bench.run(op, {given_value(x)});
    pack.outputs.push_back({"", y.stored, y.estimate});
  } else {
    const auto residual = bench.samples.activations("residual", shape);
    pack.inputs.emplace_back("residual", residual);
    const std::vector<Value> summands{given_value(x), given_value(residual)};
    const Value sum = bench.run({.id = "sum", .kind = OpKind::kResidualAdd}, summands);
    const Value y = bench.run(op, {sum, summands[0], summands[1]});
    pack.outputs.push_back({"", y.stored, y.estimate});
    pack.outputs.push_back({"sum", sum.stored, sum.estimate});
  }
  pack.facts["eps"] = bench.config().rms_norm_eps;
  return pack;
}

}  // namespace tools::op_pack
