#include "reference/ops/head.hpp"

#include "reference/matmul.hpp"
#include "reference/values.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {
namespace {

model::TensorView unquantised_linear(const OpCall& call, model::DType dtype) {
  const WeightMatrix weight(call.weights, call.op.weights[0]);
  const int64_t num_rows = call.inputs[0].num_rows();
  CHECK_EQ(call.inputs[0].row_len(), weight.in_dim());
  if (call.flops != nullptr) {
    *call.flops += 2 * num_rows * weight.out_dim() * weight.in_dim();
  }
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    const auto x = load<T>(call.inputs[0]);
    auto y = matmul<T>(
        x, num_rows, weight.out_dim(), weight.in_dim(), call.num_threads, [&](int64_t n, std::span<float> row) {
          weight.row(n, row);
        });
    return store<T>({num_rows, weight.out_dim()}, std::move(y), dtype);
  });
}

}  // namespace

model::TensorView head(const OpCall& call) {
  return unquantised_linear(call, call.rules.head == HeadRule::kFp32 ? model::DType::kF32 : model::DType::kBF16);
}

model::TensorView router_logits(const OpCall& call) {
  return unquantised_linear(call, call.rules.router == RouterRule::kFp32 ? model::DType::kF32 : model::DType::kBF16);
}

}  // namespace reference
