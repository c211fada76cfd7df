#include "tools/faults/fp8_linear.hpp"

#include <algorithm>
#include <cmath>

#include "reference/numerics/fp8.hpp"
#include "reference/numerics/reduce.hpp"
#include "reference/tokens.hpp"
#include "reference/values.hpp"

namespace tools::faults {
namespace {

float ascending_dot(std::span<const float> a, std::span<const float> b) {
  float sum = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    sum += a[k] * b[k];
  }
  return sum;
}

TensorView run_kernel(const Fp8Kernel& kernel, const OpCall& call, const reference::WeightMatrix& weight) {
  constexpr auto kBlock = static_cast<size_t>(reference::kBlockLen);
  const ActivationRows rows = activation_rows(call, weight.in_dim());
  QuantizedRows quantised_rows;
  if (kernel.quantise) {
    quantised_rows = kernel.quantise(rows);
  } else {
    for (int64_t m = 0; m < rows.num_rows; ++m) {
      quantised_rows.push_back(reference::quantize_row(call.rules.quantize_of(call.op), rows.row(m)));
    }
  }
  if (kernel.stage) {
    kernel.stage(quantised_rows);
  }
  Values y(static_cast<size_t>(rows.num_rows * weight.out_dim()));
  std::vector<float> codes(static_cast<size_t>(weight.in_dim()));
  for (int64_t n = 0; n < weight.out_dim(); ++n) {
    weight.code_row(n, codes);
    for (int64_t m = 0; m < rows.num_rows; ++m) {
      const auto& row = quantised_rows[static_cast<size_t>(m)];
      float sum = 0;
      for (size_t begin = 0; begin < codes.size(); begin += kBlock) {
        const size_t len = std::min(kBlock, codes.size() - begin);
        const auto x = std::span<const float>(row.codes).subspan(begin, len);
        const auto w = std::span<const float>(codes).subspan(begin, len);
        const float dot = kernel.dot ? kernel.dot(x, w) : ascending_dot(x, w);
        const size_t block = begin / kBlock;
        const float scaled = dot * (row.scales[block] * kernel.weight_scale(weight, n, static_cast<int64_t>(block)));
        sum = kernel.add(sum, scaled);
      }
      y[static_cast<size_t>(m * weight.out_dim() + n)] = kernel.store ? kernel.store(sum) : static_cast<double>(sum);
    }
  }
  return from_values(y, {rows.num_rows, weight.out_dim()}, model::DType::kBF16);
}

}  // namespace

ActivationRows activation_rows(const OpCall& call, int64_t in_dim) {
  ActivationRows rows{.in_dim = in_dim};
  const auto append = [&](const TensorView& tensor, int64_t t, int64_t len) {
    const auto values = reference::load<float>(model::slice_rows(tensor, t, t + 1));
    rows.x.insert(rows.x.end(), values.begin(), values.begin() + len);
  };
  const bool joins = call.op.kind == model::OpKind::kMtpConcat;
  const bool gathers = call.inputs.size() == 2 && !joins;
  for (int64_t t = 0; t < call.inputs[0].num_rows(); ++t) {
    if (gathers) {
      const auto chosen = model::slice_rows(call.inputs[1], t, t + 1).codes<int32_t>();
      if (std::find(chosen.begin(), chosen.end(), static_cast<int32_t>(call.op.expert)) == chosen.end()) {
        continue;
      }
    }
    append(call.inputs[0], t, joins ? in_dim / 2 : in_dim);
    if (joins) {
      append(call.inputs[1], t, in_dim / 2);
    }
    ++rows.num_rows;
  }
  return rows;
}

float largest_magnitude(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) {
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

QuantizedRows quantised(const ActivationRows& rows,
                        const std::function<float(int64_t, size_t, std::span<const float>)>& scale_of,
                        const std::function<float(float)>& code_of) {
  constexpr auto kBlock = static_cast<size_t>(reference::kBlockLen);
  QuantizedRows result;
  for (int64_t m = 0; m < rows.num_rows; ++m) {
    const auto x = rows.row(m);
    reference::QuantizedRow row;
    for (size_t begin = 0; begin < x.size(); begin += kBlock) {
      const auto block = x.subspan(begin, std::min(kBlock, x.size() - begin));
      const float scale = scale_of(m, begin / kBlock, block);
      row.scales.push_back(scale);
      for (const float value : block) {
        row.codes.push_back(code_of(value / scale));
      }
    }
    result.push_back(std::move(row));
  }
  return result;
}

float published_scale(std::span<const float> block) {
  return std::max(largest_magnitude(block), 1e-4F) * (1.0F / 448.0F);
}

FaultyOp with_kernel(Fp8Kernel kernel) {
  return [kernel = std::move(kernel)](const OpCall& call) {
    if (call.op.weights.empty()) {
      return reference::run_op(call);  // the glob also matches another kind of op
    }
    const reference::WeightMatrix weight(call.weights, call.op.weights[0]);
    const bool is_fp8 = weight.is_fp8() && !call.rules.exact() && call.rules.gemm == reference::Gemm::kFp8;
    return is_fp8 ? run_kernel(kernel, call, weight) : reference::run_op(call);
  };
}

}  // namespace tools::faults
