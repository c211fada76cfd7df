#include "reference/ops/moe.hpp"

#include <algorithm>
#include <type_traits>

#include "reference/numerics/functions.hpp"
#include "reference/tokens.hpp"
#include "reference/values.hpp"

namespace reference {

namespace {

// A rounding inside the sum; exact mode has none.
float bf16_step(float value) {
  return round_to_bf16(value);
}
double bf16_step(double value) {
  return value;
}

}  // namespace

model::TensorView swiglu(const OpCall& call) {
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    auto gate = load<T>(call.inputs[0]);
    const auto up = load<T>(call.inputs[1]);
    CHECK_EQ(gate.size(), up.size());
    for (size_t i = 0; i < gate.size(); ++i) {
      if constexpr (std::is_same_v<T, float>) {
        const float activated = silu_f32(gate[i]);
        gate[i] = (call.rules.swiglu == SwigluRule::kBf16Steps ? round_to_bf16(activated) : activated) * up[i];
      } else {
        gate[i] = silu_f64(gate[i]) * up[i];
      }
    }
    return store<T>(call.inputs[0].shape, std::move(gate), model::DType::kBF16);
  });
}

model::TensorView combine(const OpCall& call) {
  const model::TensorView& topk_ids = call.inputs[0];
  const model::TensorView& topk_weights = call.inputs[1];
  const int64_t tokens = topk_ids.num_rows();
  const int64_t k = topk_ids.row_len();
  const int64_t hidden = call.config().hidden_size;
  const bool bf16_steps = call.rules.combine == CombineRule::kBf16;
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    const auto weights = load<T>(topk_weights);
    const auto ids = topk_ids.codes<int32_t>();
    std::vector<T> sum(static_cast<size_t>(tokens * hidden));
    for (size_t e = 0; e < call.expert_outputs.size(); ++e) {
      if (call.expert_outputs[e].bytes.empty()) {
        continue;
      }
      const auto output = load<T>(call.expert_outputs[e]);
      const auto chosen_by = tokens_of_expert(topk_ids, static_cast<int64_t>(e));
      CHECK_EQ(output.size(), chosen_by.size() * static_cast<size_t>(hidden));
      for (size_t row = 0; row < chosen_by.size(); ++row) {
        const auto slots = ids.begin() + chosen_by[row] * k;
        const auto slot = std::find(slots, slots + k, static_cast<int32_t>(e)) - slots;
        const T weight = weights[static_cast<size_t>(chosen_by[row] * k + slot)];
        T* y = sum.data() + chosen_by[row] * hidden;
        for (size_t i = 0; i < static_cast<size_t>(hidden); ++i) {
          const T product = output[row * static_cast<size_t>(hidden) + i] * weight;
          y[i] = bf16_steps ? bf16_step(y[i] + bf16_step(product)) : y[i] + product;
        }
      }
    }
    return store<T>({tokens, hidden}, std::move(sum), bf16_steps ? model::DType::kBF16 : model::DType::kF32);
  });
}

model::TensorView moe_output(const OpCall& call) {
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    auto sum = load<T>(call.inputs[0]);
    if (call.inputs.size() == 2) {
      const auto shared = load<T>(call.inputs[1]);
      CHECK_EQ(sum.size(), shared.size());
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += shared[i];
      }
    }
    return store<T>(call.inputs[0].shape, std::move(sum), model::DType::kBF16);
  });
}

}  // namespace reference
