#include "golden/element_test.hpp"

#include <algorithm>
#include <cmath>

namespace golden {
namespace {

// Significant digits of a storage format, for telling a wider container from a narrower one.
int format_width(model::DType dtype) {
  return static_cast<int>(model::dtype_bytes(dtype));
}

bool all_representable(const Recompute& recompute, const std::vector<double>& values, model::DType format) {
  return std::all_of(
      values.begin(), values.end(), [&](double v) { return std::isnan(v) || recompute.round_to(format, v) == v; });
}

// The part of the bound that got needs: how far the value must move before it rounds to got, over the error it may have.
double bound_use(double got, double value, double step, double error) {
  const double needed = std::max(0.0, std::abs(got - value) - step / 2);
  return needed == 0 ? 0 : (error > 0 ? needed / error : INFINITY);
}

}  // namespace

TensorTest test_tensor(const Recompute& recompute,
                       const model::Estimate& estimate,
                       const model::TensorView& got,
                       double num_sigmas) {
  TensorTest test;
  if (got.shape != estimate.shape) {
    test.reason = "shape " + model::shape_text(got.shape) + ", expected " + model::shape_text(estimate.shape);
    return test;
  }
  const auto values = model::to_double(got);
  model::DType format = estimate.dtype;
  if (format_width(got.dtype) < format_width(format)) {
    test.reason =
        fmt::format("stored as {}, the rule stores {}", model::dtype_name(got.dtype), model::dtype_name(format));
    return test;
  }
  if (got.dtype != format && !all_representable(recompute, values, format)) {
    format = got.dtype;
    test.wider = true;
  }
  double signed_error = 0;
  double variance = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = estimate.value[i];
    const double error = estimate.error[i];
    double use = 0;
    bool inside = false;
    if (!std::isfinite(value) || !std::isfinite(values[i])) {
      const double stored = recompute.round_to(format, value);
      inside = std::isnan(value) ? std::isnan(values[i]) : stored == values[i];
      use = inside ? 0 : INFINITY;
    } else {
      inside = recompute.round_to(format, value - error) <= values[i] &&
               values[i] <= recompute.round_to(format, value + error);
      const double step = recompute.ulp(format, value);
      const double stored = recompute.round_to(format, value);
      use = inside && stored == values[i] ? 0 : bound_use(values[i], value, step, error);
      test.max_ulp = std::max(test.max_ulp, std::abs(values[i] - stored) / step);
      signed_error += std::copysign(1.0, value) * (values[i] - value);
      variance += step * step / 12 + (error / num_sigmas) * (error / num_sigmas);
    }
    test.num_failed += inside ? 0 : 1;
    if (test.worst < 0 || use > test.max_bound_use) {
      test.worst = static_cast<int64_t>(i);
      test.max_bound_use = use;
      test.got = values[i];
      test.expected = value;
      test.bound = error;
    }
  }
  test.bias_z = variance > 0 ? signed_error / std::sqrt(variance) : 0;
  test.holds = test.num_failed == 0;
  if (!test.holds) {
    test.reason = fmt::format("{} of {} elements outside the bound", test.num_failed, values.size());
  }
  return test;
}

}  // namespace golden
