#include "reference/ops/rms_norm.hpp"

#include <cmath>
#include <type_traits>

#include "reference/numerics/reduce.hpp"
#include "reference/ops/residual.hpp"
#include "reference/residual_stream.hpp"
#include "reference/values.hpp"

namespace reference {
namespace {

// What the norm reads: its one input, or the residual sum, rounded or not.
template <typename T>
Reused<T> norm_input(const OpCall& call) {
  const bool after_attention = call.inputs.size() == 3;
  if (!after_attention) {
    return load<T>(call.inputs[0]);
  }
  auto sum = residual_sum<T>(call.rules, call.inputs[1], call.inputs[2]);
  if constexpr (std::is_same_v<T, float>) {
    if (call.rules.residual != ResidualRule::kFusedPair) {
      round_all_to_half(call.rules.half, sum);
    }
  }
  return sum;
}

}  // namespace

template <typename T>
void rms_norm_row(const Rules& rules, double eps, std::span<const T> x, std::span<const float> gain, std::span<T> y) {
  CHECK(!x.empty());
  CHECK_EQ(x.size(), gain.size());
  CHECK_EQ(x.size(), y.size());
  const Reused<double> wide(x.begin(), x.end());
  const double mean_square = sum_of_squares_in_order<double>(wide) / static_cast<double>(x.size());
  const T inverse_rms = static_cast<T>(1.0 / std::sqrt(mean_square + eps));
  for (size_t i = 0; i < x.size(); ++i) {
    T normed = x[i] * inverse_rms;
    if constexpr (std::is_same_v<T, float>) {
      normed = rules.norm == NormRounding::kTwice ? round_to_half(rules.half, normed) : normed;
    }
    y[i] = normed * static_cast<T>(gain[i]);
  }
}

template void rms_norm_row<float>(
    const Rules&, double, std::span<const float>, std::span<const float>, std::span<float>);
template void rms_norm_row<double>(
    const Rules&, double, std::span<const double>, std::span<const float>, std::span<double>);

void rms_norm(const OpCall& call, model::TensorView& result) {
  auto gain = weight_vector(call);
  if (call.rules.half == model::DType::kF16) {
    round_all_to_half(call.rules.half, gain);
  }
  const double eps = norm_eps(call.rules, call.config(), call.op);
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    const auto x = norm_input<T>(call);
    const int64_t num_rows = call.inputs.back().num_rows();
    const auto row_len = x.size() / static_cast<size_t>(num_rows);
    const size_t hidden = gain.size();
    Reused<T> y(static_cast<size_t>(num_rows) * hidden);
    for (size_t t = 0; t < static_cast<size_t>(num_rows); ++t) {
      rms_norm_row<T>(call.rules,
                      eps,
                      std::span<const T>(x).subspan(t * row_len, hidden),
                      gain,
                      std::span<T>(y).subspan(t * hidden, hidden));
    }
    store(result, {num_rows, static_cast<int64_t>(hidden)}, std::move(y), call.rules.half);
  });
}

}  // namespace reference
