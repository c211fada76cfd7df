// Linear ops: BF16 or exact weights with one long sum, or FP8 blocks.
#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/builder.hpp"
#include "reference/numerics/reduce.hpp"
#include "reference/parallel.hpp"
#include "reference/quantize.hpp"
#include "reference/tensor_core/linear_recipes.hpp"
#include "reference/tensor_core/recipe_matmul.hpp"
#include "reference/tokens.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {
namespace {

// The rows an op works on, cut to in_dim columns (ops/linear.cpp, input_rows).
model::Estimate input_rows(const EstimateCall& call, int64_t in_dim) {
  const model::Estimate& x = call.inputs[0];
  const bool joins = call.op.kind == model::OpKind::kMtpConcat;
  std::vector<int64_t> rows;
  if (call.inputs.size() == 2 && !joins) {
    std::vector<int32_t> ids(call.inputs[1].value.begin(), call.inputs[1].value.end());
    rows = tokens_of_expert(model::make_tensor(model::DType::kI32, call.inputs[1].shape, ids), call.op.expert);
  } else {
    for (int64_t t = 0; t < x.shape.front(); ++t) {
      rows.push_back(t);
    }
  }
  model::Estimate result{{static_cast<int64_t>(rows.size()), in_dim}, {}, {}, x.dtype};
  const auto append = [&](const model::Estimate& from, int64_t row, int64_t len) {
    const auto source = row_of(from, row, 0, len);
    result.value.insert(result.value.end(), source.value.begin(), source.value.end());
    result.error.insert(result.error.end(), source.error.begin(), source.error.end());
  };
  for (const int64_t t : rows) {
    append(x, t, joins ? in_dim / 2 : in_dim);
    if (joins) {
      append(call.inputs[1], t, in_dim / 2);
    }
  }
  return result;
}

bool is_given(const model::Estimate& x) {
  return std::ranges::all_of(x.error, [](double error) { return error == 0; });
}

// The value of a linear on tensor cores: their steps leave nothing open.
model::Estimate on_tensor_cores(const EstimateCall& call, const model::Estimate& x, const WeightMatrix& weight) {
  const bool is_quantised = weight.is_fp8() && call.rules.gemm == Gemm::kFp8;
  BlockedRows rows(x.shape.front(), weight.in_dim());
  for (int64_t m = 0; m < rows.num_rows(); ++m) {
    const auto input = row_of(x, m, 0, weight.in_dim());
    const std::vector<float> row(input.value.begin(), input.value.end());
    is_quantised ? rows.set_quantised(m, row, call.rules.quantize_of(call.op)) : rows.set(m, row);
  }
  const auto values = tensor_core::recipe_matmul(*call.rules.recipe, rows, weight, call.num_threads);
  auto result = empty_estimate({rows.num_rows(), weight.out_dim()}, model::DType::kBF16);
  result.value.assign(values.begin(), values.end());
  return result;
}

// One row of activations after quantisation: code * scale and how far it may flip, split into its factors for the block sums.
struct QuantizedEstimate {
  std::vector<double> code;  // E4M3 values
  std::vector<double>
      code_error;             // distance to the code on the other side of a tie, where x lies within its error of it
  std::vector<double> scale;  // [blocks]
};

// Quantisation is exact arithmetic on given numbers: without input errors there is one legal result. With them, codes (and the
// scale, through amax) are taken at both ends of the interval; a moved scale is folded into the code errors.
QuantizedEstimate quantize(const QuantizeRule& rule, const EstimateRow& x) {
  QuantizedEstimate result;
  for (size_t begin = 0; begin < x.value.size(); begin += kBlockLen) {
    const size_t end = std::min(begin + kBlockLen, x.value.size());
    double amax = 0;
    double amax_low = 0;
    double amax_high = 0;
    for (size_t i = begin; i < end; ++i) {
      const double magnitude = std::abs(x.value[i]);
      amax = std::max(amax, magnitude);
      amax_low = std::max(amax_low, magnitude - x.error[i]);
      amax_high = std::max(amax_high, magnitude + x.error[i]);
    }
    const auto scale_of = [&](double value) { return block_scale(rule, static_cast<float>(value)); };
    const BlockScale found = scale_of(amax);
    const BlockScale low = scale_of(amax_low);
    const BlockScale high = scale_of(amax_high);
    result.scale.push_back(found.scale);
    for (size_t i = begin; i < end; ++i) {
      const double code = activation_code(rule, static_cast<float>(x.value[i]), found);
      double error = 0;
      if (x.error[i] > 0 || low.scale != high.scale) {
        for (const BlockScale& s : {low, found, high}) {
          for (const double shifted : {x.value[i] - x.error[i], x.value[i] + x.error[i]}) {
            const double other =
                static_cast<double>(activation_code(rule, static_cast<float>(shifted), s)) * s.scale / found.scale;
            error = std::max(error, std::abs(other - code));
          }
        }
      }
      result.code.push_back(code);
      result.code_error.push_back(error);
    }
  }
  return result;
}

// One output: blocks of 128. Variance: order_error inside each block, times its scales squared; two roundings of the scaled
// block; the sum over blocks by the same rule.
ValueWithError fp8_dot(const SumModel& model,
                       const QuantizedEstimate& row,
                       std::span<const float> weight_codes,
                       const WeightMatrix& weight,
                       int64_t n) {
  TermSums blocks;
  double block_variance = 0;
  for (size_t begin = 0; begin < weight_codes.size(); begin += kBlockLen) {
    const size_t end = std::min(begin + kBlockLen, weight_codes.size());
    TermSums products;
    for (size_t k = begin; k < end; ++k) {
      products.add(row.code[k] * weight_codes[k], row.code_error[k] * std::abs(static_cast<double>(weight_codes[k])));
    }
    const size_t block = begin / kBlockLen;
    const double scale = row.scale[block] * static_cast<double>(weight.scale(n, static_cast<int64_t>(block)));
    const double scaled = products.sum * scale;
    const double inside = order_error(model, products) * scale;
    const double scaling = model.num_sigmas * model.unit * std::abs(scaled) * std::sqrt(2.0 / 3);
    block_variance += inside * inside + scaling * scaling;
    blocks.add(scaled, products.input_error * scale);
  }
  const double across = order_error(model, blocks);
  return {blocks.sum, std::sqrt(block_variance + across * across) + blocks.input_error};
}

// How far the result of a tensor core may lie from the exact sum, over the sum of magnitudes: each step cuts its L products and the
// accumulator at 2^-F of the largest, and the result at 2^-P. Deterministic, since all cuts are to the same side.
double cut_frac(const tensor_core::Recipe& recipe, bool is_quantised, int64_t in_dim) {
  const auto format = is_quantised ? tensor_core::Format::kE4m3 : tensor_core::Format::kBf16;
  const auto& step = tensor_core::linear_path(recipe, format).step;
  const auto in_chain = is_quantised ? recipe.promotion.every : in_dim;
  const double num_steps = std::ceil(static_cast<double>(in_chain) / step.num_products);
  const double of_step =
      (step.num_products + 1) * std::ldexp(1.0, -step.align_bits) + std::ldexp(1.0, -step.result_bits);
  const auto num_added =
      static_cast<double>(is_quantised ? in_dim / recipe.promotion.every + 1 : recipe.chunks.num_splits);
  return num_steps * of_step + num_added * std::ldexp(1.0, -22);
}

// On inputs that may be others: the value of the inputs at hand, the error of an FP32 sum, and what the steps of either input may cut.
model::Estimate on_tensor_cores(const EstimateCall& call,
                                const model::Estimate& x,
                                const WeightMatrix& weight,
                                model::Estimate in_fp32) {
  const bool is_quantised = weight.is_fp8() && call.rules.gemm == Gemm::kFp8;
  constexpr double kQuantised = 1.1;  // an E4M3 code lies within a sixteenth of its number
  const double frac = 2 * kQuantised * cut_frac(*call.rules.recipe, is_quantised, weight.in_dim());
  parallel_for(weight.out_dim(), call.num_threads, [&](int64_t n) {
    std::vector<float> row(static_cast<size_t>(weight.in_dim()));
    weight.row(n, row);
    for (int64_t m = 0; m < x.shape.front(); ++m) {
      const auto input = row_of(x, m, 0, weight.in_dim());
      double magnitudes = 0;
      for (size_t k = 0; k < row.size(); ++k) {
        magnitudes += (std::abs(input.value[k]) + input.error[k]) * std::abs(static_cast<double>(row[k]));
      }
      in_fp32.error[static_cast<size_t>(m * weight.out_dim() + n)] += frac * magnitudes;
    }
  });
  in_fp32.value = on_tensor_cores(call, x, weight).value;
  return in_fp32;
}

model::Estimate dense_matmul(const EstimateCall& call,
                             const model::Estimate& x,
                             const WeightMatrix& weight,
                             bool to_bf16) {
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  const int64_t num_rows = x.shape.front();
  auto result = empty_estimate({num_rows, weight.out_dim()}, stored_as(call.rules, model::DType::kBF16));
  parallel_for(weight.out_dim(), call.num_threads, [&](int64_t n) {
    std::vector<float> row(static_cast<size_t>(weight.in_dim()));
    to_bf16 ? weight.bf16_row(n, row) : weight.row(n, row);
    const std::vector<double> w(row.begin(), row.end());
    for (int64_t m = 0; m < num_rows; ++m) {
      const auto input = row_of(x, m, 0, weight.in_dim());
      set(result, m * weight.out_dim() + n, dot_with_error(model, input.value, input.error, w, {}));
    }
  });
  return result;
}

}  // namespace

model::Estimate estimate_linear(const EstimateCall& call) {
  const WeightMatrix weight(call.weights, call.op.weights[0]);
  const model::Estimate x = input_rows(call, weight.in_dim());
  const bool has_recipe = call.rules.linear_sum == LinearSum::kTensorCore;
  if (has_recipe && is_given(x)) {
    return on_tensor_cores(call, x, weight);
  }
  if (has_recipe) {
    Rules in_fp32 = call.rules;
    in_fp32.linear_sum = LinearSum::kWrittenOrder;
    EstimateCall other{.rules = in_fp32,
                       .workload = call.workload,
                       .weights = call.weights,
                       .op = call.op,
                       .inputs = call.inputs,
                       .num_sigmas = call.num_sigmas,
                       .num_threads = call.num_threads};
    return on_tensor_cores(call, x, weight, estimate_linear(other));
  }
  if (call.rules.exact() || !weight.is_fp8() || call.rules.gemm != Gemm::kFp8) {
    return dense_matmul(call, x, weight, !call.rules.exact());
  }
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  const int64_t num_rows = x.shape.front();
  std::vector<QuantizedEstimate> rows;
  for (int64_t m = 0; m < num_rows; ++m) {
    rows.push_back(quantize(call.rules.quantize_of(call.op), row_of(x, m, 0, weight.in_dim())));
  }
  auto result = empty_estimate({num_rows, weight.out_dim()}, model::DType::kBF16);
  parallel_for(weight.out_dim(), call.num_threads, [&](int64_t n) {
    std::vector<float> codes(static_cast<size_t>(weight.in_dim()));
    weight.code_row(n, codes);
    for (int64_t m = 0; m < num_rows; ++m) {
      set(result, m * weight.out_dim() + n, fp8_dot(model, rows[static_cast<size_t>(m)], codes, weight, n));
    }
  });
  return result;
}

model::Estimate estimate_unquantised_linear(const EstimateCall& call, model::DType dtype) {
  const WeightMatrix weight(call.weights, call.op.weights[0]);
  auto result = dense_matmul(call, call.inputs[0], weight, false);
  result.dtype = stored_as(call.rules, dtype);
  return result;
}

}  // namespace reference
