#include "reference/ops/residual.hpp"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "reference/values.hpp"

namespace reference {
namespace {

template <typename T>
Reused<T> added(Reused<T> left, const Reused<T>& right) {
  CHECK_EQ(left.size(), right.size());
  std::transform(left.begin(), left.end(), right.begin(), left.begin(), std::plus<T>());
  return left;
}

}  // namespace

template <typename T>
Reused<T> residual_sum(const Rules& rules, const model::TensorView& o_proj, const model::TensorView& layer_input) {
  auto input = load<T>(layer_input);
  if constexpr (std::is_same_v<T, float>) {
    CHECK(!rules.exact());
    round_all_to_half(rules.half, input);
  }
  return added(load<T>(o_proj), input);
}

template Reused<float> residual_sum<float>(const Rules&, const model::TensorView&, const model::TensorView&);
template Reused<double> residual_sum<double>(const Rules&, const model::TensorView&, const model::TensorView&);

void residual_add(const OpCall& call, model::TensorView& result) {
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    store(result, call.inputs[0].shape, residual_sum<T>(call.rules, call.inputs[0], call.inputs[1]), call.rules.half);
  });
}

void layer_output(const OpCall& call, model::TensorView& result) {
  const auto dtype = call.rules.residual == ResidualRule::kFusedPair ? model::DType::kF32 : call.rules.half;
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    store(result, call.inputs[0].shape, added(load<T>(call.inputs[0]), load<T>(call.inputs[1])), dtype);
  });
}

}  // namespace reference
