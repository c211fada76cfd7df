#include "reference/ops/linear.hpp"

#include <algorithm>

#include "reference/any_order.hpp"
#include "reference/matmul.hpp"
#include "reference/panel_matmul.hpp"
#include "reference/partial_sums.hpp"
#include "reference/residual_stream.hpp"
#include "reference/reused.hpp"
#include "reference/tensor_core/recipe_matmul.hpp"
#include "reference/tokens.hpp"
#include "reference/values.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {
namespace {

// The rows this op works on: all, or those of the tokens that chose its expert; of each the first `in_dim` columns, or both
// halves of a joined input.
class InputRows {
 public:
  InputRows(const OpCall& call, int64_t in_dim) : call_(call), in_dim_(in_dim) {
    if (joins_halves()) {
      CHECK_EQ(2 * call.inputs[0].row_len(), in_dim);
      CHECK(call.inputs[0].shape == call.inputs[1].shape);
    } else {
      CHECK(call.inputs[0].row_len() >= in_dim);
    }
    if (gathers()) {
      tokens_ = tokens_of_expert(call.inputs[1], call.op.expert);
    }
  }

  [[nodiscard]] int64_t count() const {
    return gathers() ? static_cast<int64_t>(tokens_.size()) : call_.inputs[0].num_rows();
  }

  // Row m: part(tensor, index of its first element there, place in the row) for each part of it.
  template <typename Part>
  void visit(int64_t m, const Part& part) const {
    if (joins_halves()) {
      part(call_.inputs[0], m * in_dim_ / 2, 0, in_dim_ / 2);
      part(call_.inputs[1], m * in_dim_ / 2, in_dim_ / 2, in_dim_ / 2);
    } else {
      const int64_t t = gathers() ? tokens_[static_cast<size_t>(m)] : m;
      part(call_.inputs[0], t * call_.inputs[0].row_len(), 0, in_dim_);
    }
  }

 private:
  [[nodiscard]] bool joins_halves() const { return call_.op.kind == model::OpKind::kMtpConcat; }
  [[nodiscard]] bool gathers() const { return !joins_halves() && call_.inputs.size() == 2; }

  const OpCall& call_;
  int64_t in_dim_;
  Reused<int64_t> tokens_;
};

void published(const OpCall& call, const WeightMatrix& weight, const InputRows& rows, model::TensorView& result) {
  const bool is_quantised = weight.is_fp8() && call.rules.gemm == Gemm::kFp8;
  BlockedRows x(rows.count(), weight.in_dim());
  Reused<float> row(static_cast<size_t>(weight.in_dim()));
  for (int64_t m = 0; m < rows.count(); ++m) {
    rows.visit(m, [&](const model::TensorView& tensor, int64_t first, int64_t column, int64_t len) {
      load_part(tensor, first, std::span<float>(row).subspan(static_cast<size_t>(column), static_cast<size_t>(len)));
    });
    is_quantised ? x.set_quantised(m, row, call.rules.quantize_of(call.op)) : x.set(m, row);
  }
  const WeightForm form = is_quantised ? WeightForm::kCodes : half_form(call.rules.half);
  const auto stored = [&](auto&& y) {
    if (const float unit = output_unit(call.rules, call.config(), call.op); unit != 1.0f) {
      std::ranges::for_each(y, [unit](float& value) { value *= unit; });
    }
    put(result, call.rules.half, {rows.count(), weight.out_dim()}, encode_half(call.rules.half, y));
  };
  switch (call.rules.linear_sum) {
    case LinearSum::kTensorCore:
      return stored(tensor_core::recipe_matmul(*call.rules.recipe, x, weight, call.num_threads));
    case LinearSum::kAnyOrder: return stored(any_order_matmul(x, weight, form, call.num_threads));
    case LinearSum::kWrittenOrder: break;
  }
  Reused<float> y(static_cast<size_t>(rows.count() * weight.out_dim()));
  panel_matmul(x, weight, form, call.rules.association, call.num_threads, y);
  stored(y);
}

std::vector<double> exact(const OpCall& call, const WeightMatrix& weight, const InputRows& rows) {
  std::vector<double> x(static_cast<size_t>(rows.count() * weight.in_dim()));
  std::vector<Reused<double>> inputs;
  for (const auto& input : call.inputs) {
    inputs.push_back(input.dtype == model::DType::kI32 ? Reused<double>() : load<double>(input));
  }
  for (int64_t m = 0; m < rows.count(); ++m) {
    rows.visit(m, [&](const model::TensorView& tensor, int64_t first, int64_t column, int64_t len) {
      const auto& values = inputs[static_cast<size_t>(&tensor - call.inputs.data())];
      std::copy_n(values.begin() + first, len, x.begin() + m * weight.in_dim() + column);
    });
  }
  return matmul<double>(
      x, rows.count(), weight.out_dim(), weight.in_dim(), call.num_threads, [&](int64_t n, std::span<float> row) {
        weight.row(n, row);
      });
}

// What tensor-parallel ranks give together.
void sum_of_parts(const OpCall& call, int64_t part_len, int64_t num_parts, model::TensorView& result) {
  const Rules rules = rules_of_part(call.rules);
  std::vector<float> total;
  model::TensorView of_part_result;
  for (int64_t part = 0; part < num_parts; ++part) {
    const ColumnPart weights(call.weights, part * part_len, (part + 1) * part_len);
    OpCall of_part{.rules = rules, .workload = call.workload, .weights = weights, .op = call.op};
    of_part.inputs = {model::slice_columns(call.inputs[0], part * part_len, (part + 1) * part_len)};
    of_part.num_threads = call.num_threads;
    of_part.flops = call.flops;
    linear(of_part, of_part_result);
    const auto y = load<float>(of_part_result);
    total.resize(y.size());
    for (size_t i = 0; i < y.size(); ++i) {
      total[i] = part == 0 ? y[i] : total[i] + y[i];
    }
  }
  store(result, of_part_result.shape, std::move(total), call.rules.half);
}

}  // namespace

void linear(const OpCall& call, model::TensorView& result) {
  const MatrixOf fetched(call);
  const WeightMatrix& weight = fetched.matrix();
  if (const auto parts = partial_sums_of(call.rules, call.op, weight); parts > 1) {
    return sum_of_parts(call, weight.in_dim() / parts, parts, result);
  }
  const InputRows rows(call, weight.in_dim());
  if (call.flops != nullptr) {
    *call.flops += 2 * rows.count() * weight.out_dim() * weight.in_dim();
  }
  if (call.rules.exact()) {
    store(result, {rows.count(), weight.out_dim()}, exact(call, weight, rows), call.rules.half);
  } else {
    published(call, weight, rows, result);
  }
}

}  // namespace reference
