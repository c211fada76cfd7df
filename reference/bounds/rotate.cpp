// RoPE: two products and a sum for each element, with cos and sin from whatever library the device has.
#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/builder.hpp"
#include "reference/ops/rotate.hpp"
#include "reference/rope.hpp"
#include "reference/tokens.hpp"

namespace reference {
namespace {

// HF: BF16 cos and sin, whose last FP32 digits may only matter at a tie; products rounded to BF16; the sum is left unrounded.
std::pair<ValueWithError, ValueWithError> rotate_in_bf16_steps(const EstimateRow& x,
                                                               model::DType half,
                                                               size_t pair,
                                                               const Rotation& turn) {
  const auto bf16 = [half](double value, double error) { return rounded_value(half, {value, error}); };
  const double function_error = std::ldexp(1.0, -22);
  const auto cos = bf16(turn.cos, function_error);
  const auto sin = bf16(turn.sin, function_error);
  const auto product = [&](size_t element, const ValueWithError& factor) {
    const double value = x.value[element];
    const double error = x.error[element];
    return bf16(value * factor.value, std::abs(value) * factor.error + error * (std::abs(factor.value) + factor.error));
  };
  const auto x0_cos = product(2 * pair, cos);
  const auto x0_sin = product(2 * pair, sin);
  const auto x1_cos = product(2 * pair + 1, cos);
  const auto x1_sin = product(2 * pair + 1, sin);
  const double unit = std::ldexp(1.0, -24);
  const auto sum = [unit](const ValueWithError& left, double sign, const ValueWithError& right) {
    const double value = left.value + sign * right.value;
    return ValueWithError{value, left.error + right.error + std::abs(value) * unit};
  };
  return {sum(x0_cos, -1, x1_sin), sum(x1_cos, 1, x0_sin)};
}

}  // namespace

// A rotation keeps lengths, so every error is measured against the pair's length |(x0, x1)|: cos and sin of a library may be off
// by 2 FP32 ulp of 1 (2^-22); two products and a sum add 2 u. In exact mode cos and sin are still FP32 tables, so the 2 ulp stay.
model::Estimate estimate_rotate(const EstimateCall& call) {
  const auto& c = call.config();
  const bool is_query = call.op.kind == model::OpKind::kRotateQuery;
  const int64_t num_vectors = is_query ? c.num_attention_heads : 1;
  const int64_t first = is_query ? c.qk_nope_head_dim : c.kv_lora_rank;
  const auto places = token_places(call.workload);
  const auto tokens = static_cast<int64_t>(places.size());
  const auto frequencies = inverse_frequencies(c, call.rules.frequency);
  const double relative = std::ldexp(1.0, -22) + 2 * sum_model(call.rules, call.num_sigmas).unit;
  const model::Shape shape =
      is_query ? model::Shape{tokens, num_vectors, c.qk_rope_head_dim} : model::Shape{tokens, c.qk_rope_head_dim};
  auto result = empty_estimate(shape, stored_as(call.rules, call.rules.half));
  int64_t out = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t position = rope_position(c, call.op, places[static_cast<size_t>(t)].position);
    const auto turns = rotations(c, frequencies, position);
    for (int64_t v = 0; v < num_vectors; ++v) {
      const auto x = row_of(call.inputs[0], t, first + v * c.qk_head_dim(), c.qk_rope_head_dim);
      for (size_t i = 0; i < turns.size(); ++i) {
        const double x0 = x.value[2 * i];
        const double x1 = x.value[2 * i + 1];
        const double cos = turns[i].cos;
        const double sin = turns[i].sin;
        if (call.rules.rope == RopeRule::kBf16Steps && !call.rules.exact()) {
          const auto bf16_turn = rotate_in_bf16_steps(x, call.rules.half, i, turns[i]);
          set(result, out++, bf16_turn.first);
          set(result, out++, bf16_turn.second);
          continue;
        }
        const double error = std::hypot(x0, x1) * relative + x.error[2 * i] + x.error[2 * i + 1];
        set(result, out++, {x0 * cos - x1 * sin, error});
        set(result, out++, {x0 * sin + x1 * cos, error});
      }
    }
  }
  return result;
}

}  // namespace reference
