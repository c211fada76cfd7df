#include "reference/ops/head.hpp"

#include <array>

#include "reference/matmul.hpp"
#include "reference/panel_matmul.hpp"
#include "reference/tensor_core/recipe_matmul.hpp"
#include "reference/values.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {
namespace {

void unquantised_linear(const OpCall& call, model::DType dtype, model::TensorView& result) {
  const MatrixOf fetched(call);
  const WeightMatrix& weight = fetched.matrix();
  const int64_t num_rows = call.inputs[0].num_rows();
  CHECK_EQ(call.inputs[0].row_len(), weight.in_dim());
  if (call.flops != nullptr) {
    *call.flops += 2 * num_rows * weight.out_dim() * weight.in_dim();
  }
  const std::array<int64_t, 2> shape{num_rows, weight.out_dim()};
  if (call.rules.exact()) {
    const auto x = load<double>(call.inputs[0]);
    const auto read_row = [&](int64_t n, std::span<float> row) { weight.row(n, row); };
    return store(result,
                 shape,
                 matmul<double>(x, num_rows, weight.out_dim(), weight.in_dim(), call.num_threads, read_row),
                 dtype);
  }
  BlockedRows x(num_rows, weight.in_dim());
  Reused<float> row(static_cast<size_t>(weight.in_dim()));
  for (int64_t m = 0; m < num_rows; ++m) {
    load_part(call.inputs[0], m * weight.in_dim(), row);
    x.set(m, row);
  }
  if (on_tensor_cores(call.rules, dtype)) {
    return store(result, shape, tensor_core::recipe_matmul(*call.rules.recipe, x, weight, call.num_threads), dtype);
  }
  const WeightForm form = call.rules.half == model::DType::kF16 ? half_form(call.rules.half) : WeightForm::kValues;
  Reused<float> y(static_cast<size_t>(num_rows * weight.out_dim()));
  panel_matmul(x, weight, form, call.rules.association, call.num_threads, y);
  store(result, shape, std::move(y), dtype);
}

}  // namespace

bool on_tensor_cores(const Rules& rules, model::DType result) {
  return rules.linear_sum == LinearSum::kTensorCore && result == model::DType::kBF16;
}

void head(const OpCall& call, model::TensorView& result) {
  unquantised_linear(call, call.rules.head == HeadRule::kFp32 ? model::DType::kF32 : call.rules.half, result);
}

void router_logits(const OpCall& call, model::TensorView& result) {
  unquantised_linear(call, call.rules.router == RouterRule::kFp32 ? model::DType::kF32 : call.rules.half, result);
}

}  // namespace reference
