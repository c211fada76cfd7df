// Linear ops: BF16 or exact weights with one long sum, or FP8 blocks.
#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/builder.hpp"
#include "reference/numerics/reduce.hpp"
#include "reference/ops/head.hpp"
#include "reference/parallel.hpp"
#include "reference/partial_sums.hpp"
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
  Reused<int64_t> rows;
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
  auto result = empty_estimate({rows.num_rows(), weight.out_dim()}, call.rules.half);
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

// Of one row of inputs: how many of its codes (or BF16 numbers) may be others, and in how many 128-blocks.
struct OpenInputs {
  int64_t elements = 0;
  int64_t blocks = 0;
};

OpenInputs open_inputs(const EstimateCall& call, const EstimateRow& x, bool is_quantised) {
  std::vector<double> errors(x.error.begin(), x.error.end());
  if (is_quantised) {
    errors = quantize(call.rules.quantize_of(call.op), x).code_error;
  }
  OpenInputs open;
  for (size_t begin = 0; begin < errors.size(); begin += kBlockLen) {
    const auto end = errors.begin() + static_cast<int64_t>(std::min(begin + kBlockLen, errors.size()));
    const auto count = std::count_if(errors.begin() + static_cast<int64_t>(begin), end, [](double e) { return e > 0; });
    open.elements += count;
    open.blocks += count > 0 ? 1 : 0;
  }
  return open;
}

// On inputs that may be others. Rows whose codes are all sure have one result; elsewhere the error of an FP32 sum covers what another
// code changes, and to it comes what the steps cut differently then: a last place of the largest term or partial sum for each open
// element, and two for each step behind one. A code that moves the largest exponent of a step can exceed it.
model::Estimate on_tensor_cores(const EstimateCall& call,
                                const model::Estimate& x,
                                const WeightMatrix& weight,
                                model::Estimate in_fp32) {
  const auto& recipe = *call.rules.recipe;
  const bool is_quantised = weight.is_fp8() && call.rules.gemm == Gemm::kFp8;
  const auto format = is_quantised ? tensor_core::Format::kE4m3 : tensor_core::Format::kBf16;
  const auto& step = tensor_core::linear_path(recipe, format).step;
  const double last_place = 2 * std::ldexp(1.0, -std::min(step.align_bits, step.result_bits));
  const auto in_value = on_tensor_cores(call, x, weight);
  std::vector<OpenInputs> open;
  for (int64_t m = 0; m < x.shape.front(); ++m) {
    open.push_back(open_inputs(call, row_of(x, m, 0, weight.in_dim()), is_quantised));
  }
  parallel_for(weight.out_dim(), call.num_threads, [&](int64_t n) {
    std::vector<float> row(static_cast<size_t>(weight.in_dim()));
    weight.row(n, row);
    for (int64_t m = 0; m < x.shape.front(); ++m) {
      const auto index = static_cast<size_t>(m * weight.out_dim() + n);
      const auto& [num_open, num_blocks] = open[static_cast<size_t>(m)];
      if (num_open == 0) {
        in_fp32.error[index] = 0;
        continue;
      }
      const auto input = row_of(x, m, 0, weight.in_dim());
      TermSums terms;
      double largest = 0;
      for (size_t k = 0; k < row.size(); ++k) {
        terms.add(input.value[k] * static_cast<double>(row[k]));
        largest =
            std::max(largest, (std::abs(input.value[k]) + input.error[k]) * std::abs(static_cast<double>(row[k])));
      }
      const int64_t chain = is_quantised ? num_blocks * kBlockLen : weight.in_dim();
      const double num_places = static_cast<double>(num_open) + 2.0 * static_cast<double>(chain) / step.num_products;
      in_fp32.error[index] += num_places * last_place * std::max(largest, terms.largest_prefix);
    }
  });
  in_fp32.value = in_value.value;
  return in_fp32;
}

model::Estimate columns_of(const model::Estimate& x, int64_t first, int64_t len) {
  auto part = empty_estimate({x.shape.front(), len}, x.dtype);
  for (int64_t row = 0; row < x.shape.front(); ++row) {
    const auto source = row_of(x, row, first, len);
    std::ranges::copy(source.value, part.value.begin() + row * len);
    std::ranges::copy(source.error, part.error.begin() + row * len);
  }
  return part;
}

model::Estimate dense_matmul(const EstimateCall& call,
                             const model::Estimate& x,
                             const WeightMatrix& weight,
                             WeightForm form) {
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  const int64_t num_rows = x.shape.front();
  auto result = empty_estimate({num_rows, weight.out_dim()}, stored_as(call.rules, call.rules.half));
  parallel_for(weight.out_dim(), call.num_threads, [&](int64_t n) {
    std::vector<float> row(static_cast<size_t>(weight.in_dim()));
    weight.row_as(form, n, row);
    const std::vector<double> w(row.begin(), row.end());
    for (int64_t m = 0; m < num_rows; ++m) {
      const auto input = row_of(x, m, 0, weight.in_dim());
      set(result, m * weight.out_dim() + n, dot_with_error(model, input.value, input.error, w, {}));
    }
  });
  return result;
}

}  // namespace

namespace {

// Every part is rounded; their FP32 sum is rounded n - 1 times, in whatever order.
model::Estimate sum_of_parts(const EstimateCall& call, int64_t part_len, int64_t num_parts) {
  const Rules rules = rules_of_part(call.rules);
  model::Estimate total;
  for (int64_t part = 0; part < num_parts; ++part) {
    const ColumnPart weights(call.weights, part * part_len, (part + 1) * part_len);
    EstimateCall of_part{.rules = rules,
                         .workload = call.workload,
                         .weights = weights,
                         .op = call.op,
                         .inputs = {columns_of(call.inputs[0], part * part_len, part_len)},
                         .num_sigmas = call.num_sigmas,
                         .num_threads = call.num_threads};
    const auto y = rounded(estimate_linear(of_part));
    if (part == 0) {
      total = y;
      continue;
    }
    for (size_t i = 0; i < y.value.size(); ++i) {
      total.value[i] += y.value[i];
      total.error[i] += y.error[i] + std::ldexp(std::abs(total.value[i]), -24);
    }
  }
  return total;
}

// One sum over the whole of K.
model::Estimate sum_of_whole(const EstimateCall& call, const WeightMatrix& weight) {
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
    return on_tensor_cores(call, x, weight, sum_of_whole(other, weight));
  }
  if (call.rules.exact() || !weight.is_fp8() || call.rules.gemm != Gemm::kFp8) {
    return dense_matmul(call, x, weight, stored_form(call.rules));
  }
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  const int64_t num_rows = x.shape.front();
  std::vector<QuantizedEstimate> rows;
  for (int64_t m = 0; m < num_rows; ++m) {
    rows.push_back(quantize(call.rules.quantize_of(call.op), row_of(x, m, 0, weight.in_dim())));
  }
  auto result = empty_estimate({num_rows, weight.out_dim()}, call.rules.half);
  parallel_for(weight.out_dim(), call.num_threads, [&](int64_t n) {
    std::vector<float> codes(static_cast<size_t>(weight.in_dim()));
    weight.code_row(n, codes);
    for (int64_t m = 0; m < num_rows; ++m) {
      set(result, m * weight.out_dim() + n, fp8_dot(model, rows[static_cast<size_t>(m)], codes, weight, n));
    }
  });
  return result;
}

}  // namespace

model::Estimate estimate_linear(const EstimateCall& call) {
  const WeightMatrix weight(call.weights, call.op.weights[0]);
  if (const auto parts = partial_sums_of(call.rules, call.op, weight); parts > 1) {
    return sum_of_parts(call, weight.in_dim() / parts, parts);
  }
  return in_stream_units(call, sum_of_whole(call, weight));
}

model::Estimate estimate_unquantised_linear(const EstimateCall& call, model::DType dtype) {
  const WeightMatrix weight(call.weights, call.op.weights[0]);
  const model::Estimate& x = call.inputs[0];
  const bool has_recipe = on_tensor_cores(call.rules, dtype);
  if (has_recipe && is_given(x)) {
    return on_tensor_cores(call, x, weight);
  }
  auto result =
      dense_matmul(call, x, weight, call.rules.half == model::DType::kF16 ? WeightForm::kFp16 : WeightForm::kValues);
  result.dtype = stored_as(call.rules, dtype);
  return has_recipe ? on_tensor_cores(call, x, weight, std::move(result)) : result;
}

}  // namespace reference
