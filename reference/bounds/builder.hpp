// Small helpers that every bound uses: building an estimate element by element.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "model/check.hpp"
#include "model/estimate.hpp"
#include "reference/bounds/dot.hpp"
#include "reference/estimate_call.hpp"
#include "reference/numerics/round.hpp"
#include "reference/residual_stream.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {

// Format that a rule stores its result in; exact mode always stores FP64.
inline model::DType stored_as(const Rules& rules, model::DType dtype) {
  return rules.exact() ? model::DType::kF64 : dtype;
}

// What a linear without quantisation reads its weight as.
inline WeightForm stored_form(const Rules& rules) {
  return rules.exact() ? WeightForm::kValues : half_form(rules.half);
}

inline model::Estimate empty_estimate(model::Shape shape, model::DType dtype) {
  const auto size = static_cast<size_t>(model::num_elements(shape));
  return {std::move(shape), std::vector<double>(size), std::vector<double>(size), dtype};
}

inline void set(model::Estimate& estimate, int64_t index, ValueWithError element) {
  estimate.value[static_cast<size_t>(index)] = element.value;
  estimate.error[static_cast<size_t>(index)] = element.error;
}

// An intermediate rounding inside an op: the value is rounded; the error becomes the distance to the other side wherever the
// interval straddles a boundary.
inline ValueWithError rounded_value(model::DType format, ValueWithError element) {
  const double value = round_to_format(format, element.value);
  const double low = round_to_format(format, element.value - element.error);
  const double high = round_to_format(format, element.value + element.error);
  return {value, std::max(value - low, high - value)};
}

// The result in the units of the stream, where it becomes part of it: one FP32 product more.
inline model::Estimate in_stream_units(const EstimateCall& call, model::Estimate result) {
  const double unit = output_unit(call.rules, call.config(), call.op);
  if (unit == 1.0) {
    return result;
  }
  for (size_t i = 0; i < result.value.size(); ++i) {
    const double value = result.value[i] * unit;
    set(result, static_cast<int64_t>(i), {value, result.error[i] * unit + std::ldexp(std::abs(value), -24)});
  }
  return result;
}

inline int64_t row_len(const model::Estimate& estimate) {
  return estimate.shape.front() == 0 ? 0 : static_cast<int64_t>(estimate.value.size()) / estimate.shape.front();
}

// Elements [begin, begin + len) of row `row`.
struct EstimateRow {
  std::span<const double> value;
  std::span<const double> error;
};

inline EstimateRow row_of(const model::Estimate& estimate, int64_t row, int64_t begin, int64_t len) {
  const auto offset = static_cast<size_t>(row * row_len(estimate) + begin);
  const auto count = static_cast<size_t>(len);
  return {std::span<const double>(estimate.value).subspan(offset, count),
          std::span<const double>(estimate.error).subspan(offset, count)};
}

// left + right; `unit` is the roundoff of an addition whose result is rounded once more afterwards. The FP32 sum of two given
// numbers has no error where it is exact.
inline model::Estimate sum_with_error(const model::Estimate& left,
                                      const model::Estimate& right,
                                      double unit,
                                      model::DType dtype) {
  CHECK_EQ(left.value.size(), right.value.size());
  auto result = empty_estimate(left.shape, dtype);
  for (size_t i = 0; i < left.value.size(); ++i) {
    const double value = left.value[i] + right.value[i];
    const double input_error = left.error[i] + right.error[i];
    const bool exact = input_error == 0 && static_cast<double>(static_cast<float>(value)) == value;
    set(result, static_cast<int64_t>(i), {value, input_error + (exact ? 0 : std::abs(value) * unit)});
  }
  return result;
}

}  // namespace reference
