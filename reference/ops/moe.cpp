#include "reference/ops/moe.hpp"

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>

#include "reference/numerics/functions.hpp"
#include "reference/tokens.hpp"
#include "reference/values.hpp"

namespace reference {

namespace {

// A rounding inside the sum; exact mode has none.
float half_step(const Rules& rules, float value) {
  return round_to_half(rules.half, value);
}
double half_step(const Rules&, double value) {
  return value;
}

}  // namespace

void swiglu(const OpCall& call, model::TensorView& result) {
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    auto gate = load<T>(call.inputs[0]);
    const auto up = load<T>(call.inputs[1]);
    CHECK_EQ(gate.size(), up.size());
    if constexpr (std::is_same_v<T, float>) {
      const auto len = static_cast<int64_t>(gate.size());
      simd::kernels().silu(gate.data(), len, gate.data());
      if (call.rules.swiglu == SwigluRule::kBf16Steps) {
        round_all_to_half(call.rules.half, gate);
      }
    } else {
      std::transform(gate.begin(), gate.end(), gate.begin(), silu_f64);
    }
    std::transform(gate.begin(), gate.end(), up.begin(), gate.begin(), std::multiplies<T>());
    store(result, call.inputs[0].shape, std::move(gate), call.rules.half);
  });
}

void combine(const OpCall& call, model::TensorView& result) {
  const model::TensorView& topk_ids = call.inputs[0];
  const int64_t tokens = topk_ids.num_rows();
  const int64_t k = topk_ids.row_len();
  const auto hidden = static_cast<size_t>(call.config().hidden_size);
  const CombineRule rule = call.rules.combine;
  const bool bf16_steps = rounds_each_step(rule);
  const bool in_parts = call.rules.expert_ranks > 1 && !call.rules.exact();
  const auto choices = choices_of_tokens(topk_ids, !sums_by_slot(rule));
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    const auto weights = load<T>(call.inputs[1]);
    Reused<Reused<T>> outputs;
    outputs.reserve(call.expert_outputs.size());
    for (const auto& output : call.expert_outputs) {
      outputs.push_back(output.bytes.empty() ? Reused<T>() : load<T>(output));
    }
    Reused<T> sum(static_cast<size_t>(tokens) * hidden, T(0));
    Reused<T> of_rank(hidden);
    for (size_t t = 0; t < choices.size(); ++t) {
      T* y = sum.data() + t * hidden;
      std::ranges::fill(of_rank, T(0));
      int64_t rank = 0;
      const auto add_rank = [&] {
        for (size_t i = 0; i < hidden; ++i) {
          y[i] += half_step(call.rules, std::exchange(of_rank[i], T(0)));
        }
      };
      for (const Choice& choice : choices[t]) {
        const T weight = weights[t * static_cast<size_t>(k) + static_cast<size_t>(choice.slot)];
        const auto& output = outputs.at(static_cast<size_t>(choice.expert));
        CHECK(output.size() >= static_cast<size_t>(choice.row + 1) * hidden);
        const T* x = output.data() + static_cast<size_t>(choice.row) * hidden;
        if (in_parts) {
          const int64_t next = rank_of_expert(choice.expert, call.config().n_routed_experts, call.rules.expert_ranks);
          if (std::exchange(rank, next) != next) {
            add_rank();
          }
          for (size_t i = 0; i < hidden; ++i) {
            of_rank[i] += x[i] * weight;
          }
          continue;
        }
        for (size_t i = 0; i < hidden; ++i) {
          const T product = x[i] * weight;
          y[i] = bf16_steps ? half_step(call.rules, y[i] + half_step(call.rules, product)) : y[i] + product;
        }
      }
      if (in_parts) {
        add_rank();
      }
    }
    const auto dtype = rule == CombineRule::kFp32 && !in_parts ? model::DType::kF32 : call.rules.half;
    store(result, {tokens, call.config().hidden_size}, std::move(sum), dtype);
  });
}

void moe_output(const OpCall& call, model::TensorView& result) {
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    auto sum = load<T>(call.inputs[0]);
    if (call.inputs.size() == 2) {
      const auto shared = load<T>(call.inputs[1]);
      CHECK_EQ(sum.size(), shared.size());
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += shared[i];
      }
    }
    store(result, call.inputs[0].shape, std::move(sum), call.rules.half);
  });
}

}  // namespace reference
