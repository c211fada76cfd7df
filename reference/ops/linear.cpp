#include "reference/ops/linear.hpp"

#include <algorithm>

#include "reference/matmul.hpp"
#include "reference/quantize.hpp"
#include "reference/tokens.hpp"
#include "reference/values.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {
namespace {

// The first in_dim columns of the rows this op works on: all, or those of the tokens that chose its expert.
template <typename T>
std::vector<T> input_rows(const OpCall& call, int64_t in_dim) {
  if (call.op.kind == model::OpKind::kMtpConcat) {
    const auto left = load<T>(call.inputs[0]);
    const auto right = load<T>(call.inputs[1]);
    const int64_t half = call.inputs[0].row_len();
    CHECK_EQ(2 * half, in_dim);
    std::vector<T> rows;
    for (int64_t t = 0; t < call.inputs[0].num_rows(); ++t) {
      rows.insert(rows.end(), left.begin() + t * half, left.begin() + (t + 1) * half);
      rows.insert(rows.end(), right.begin() + t * half, right.begin() + (t + 1) * half);
    }
    return rows;
  }
  const auto x = load<T>(call.inputs[0]);
  const int64_t row_len = call.inputs[0].row_len();
  CHECK(row_len >= in_dim);
  std::vector<T> rows;
  const auto append = [&](int64_t t) {
    rows.insert(rows.end(), x.begin() + t * row_len, x.begin() + t * row_len + in_dim);
  };
  if (call.inputs.size() == 2) {
    for (const int64_t t : tokens_of_expert(call.inputs[1], call.op.expert)) {
      append(t);
    }
  } else {
    for (int64_t t = 0; t < call.inputs[0].num_rows(); ++t) {
      append(t);
    }
  }
  return rows;
}

std::vector<float> fp8_matmul(const OpCall& call,
                              const WeightMatrix& weight,
                              std::span<const float> x,
                              int64_t num_rows) {
  const int64_t in_dim = weight.in_dim();
  const int64_t out_dim = weight.out_dim();
  const QuantizeRule rule = call.rules.quantize_of(call.op);
  const bool scales_first = call.rules.association == ScaleAssociation::kScalesFirst;
  std::vector<QuantizedRow> rows;
  for (int64_t m = 0; m < num_rows; ++m) {
    rows.push_back(quantize_row(rule, x.subspan(static_cast<size_t>(m * in_dim), static_cast<size_t>(in_dim))));
  }
  std::vector<float> y(static_cast<size_t>(num_rows * out_dim));
  parallel_for(out_dim, call.num_threads, [&](int64_t n) {
    std::vector<float> codes(static_cast<size_t>(in_dim));
    weight.code_row(n, codes);
    for (int64_t m = 0; m < num_rows; ++m) {
      const QuantizedRow& row = rows[static_cast<size_t>(m)];
      float sum = 0;
      for (int64_t begin = 0; begin < in_dim; begin += kBlockLen) {
        const auto len = static_cast<size_t>(std::min<int64_t>(kBlockLen, in_dim - begin));
        const auto offset = static_cast<size_t>(begin);
        const float dot = block_dot<float>(std::span<const float>(row.codes).subspan(offset, len),
                                           std::span<const float>(codes).subspan(offset, len));
        const int64_t block = begin / kBlockLen;
        const float x_scale = row.scales[static_cast<size_t>(block)];
        sum += scales_first ? dot * (x_scale * weight.scale(n, block)) : dot * x_scale * weight.scale(n, block);
      }
      y[static_cast<size_t>(m * out_dim + n)] = sum;
    }
  });
  return y;
}

}  // namespace

model::TensorView linear(const OpCall& call) {
  const WeightMatrix weight(call.weights, call.op.weights[0]);
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    const auto x = input_rows<T>(call, weight.in_dim());
    const int64_t num_rows = static_cast<int64_t>(x.size()) / weight.in_dim();
    if (call.flops != nullptr) {
      *call.flops += 2 * num_rows * weight.out_dim() * weight.in_dim();
    }
    std::vector<T> y;
    if constexpr (std::is_same_v<T, float>) {
      if (weight.is_fp8() && call.rules.gemm == Gemm::kFp8) {
        y = fp8_matmul(call, weight, x, num_rows);
      }
    }
    if (y.empty()) {
      y = matmul<T>(
          x, num_rows, weight.out_dim(), weight.in_dim(), call.num_threads, [&](int64_t n, std::span<float> row) {
            call.rules.exact() ? weight.row(n, row) : weight.bf16_row(n, row);
          });
    }
    return store<T>({num_rows, weight.out_dim()}, std::move(y), model::DType::kBF16);
  });
}

}  // namespace reference
