#include "reference/ops/rotate.hpp"

#include <optional>
#include <type_traits>
#include <utility>

#include "reference/rope.hpp"
#include "reference/tokens.hpp"
#include "reference/values.hpp"

namespace reference {
namespace {

template <typename T>
std::pair<T, T> rotate_pair(const Rules& rules, T x0, T x1, T cos, T sin) {
  if constexpr (std::is_same_v<T, float>) {
    if (rules.rope == RopeRule::kBf16Steps) {
      const auto step = [&rules](float value) { return round_to_half(rules.half, value); };
      cos = step(cos);
      sin = step(sin);
      return {step(x0 * cos) - step(x1 * sin), step(x1 * cos) + step(x0 * sin)};
    }
  }
  return {x0 * cos - x1 * sin, x0 * sin + x1 * cos};
}

// Rotates `num_vectors` vectors of each row; vector v starts at column first + v * stride.
void rotate(
    const OpCall& call, Extents shape, int64_t num_vectors, int64_t first, int64_t stride, model::TensorView& result) {
  const auto places = token_places(call.workload);
  std::optional<RotationTable> own;
  RotationTable& table = call.rotations != nullptr ? *call.rotations : own.emplace(call.config(), call.rules.frequency);
  const int64_t rope_dim = call.config().qk_rope_head_dim;
  const int64_t row_len = call.inputs[0].row_len();
  CHECK_EQ(call.inputs[0].num_rows(), static_cast<int64_t>(places.size()));
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    const auto x = load<T>(call.inputs[0]);
    Reused<T> y;
    y.reserve(static_cast<size_t>(shape.num_elements()));
    for (size_t t = 0; t < places.size(); ++t) {
      const auto turns = table.at(rope_position(call.config(), call.op, places[t].position));
      for (int64_t v = 0; v < num_vectors; ++v) {
        const T* pair = x.data() + static_cast<int64_t>(t) * row_len + first + v * stride;
        for (int64_t i = 0; i < rope_dim / 2; ++i, pair += 2) {
          const T cos = turns[static_cast<size_t>(i)].cos;
          const T sin = turns[static_cast<size_t>(i)].sin;
          const auto [first_out, second_out] = rotate_pair(call.rules, pair[0], pair[1], cos, sin);
          y.push_back(first_out);
          y.push_back(second_out);
        }
      }
    }
    store(result, shape, std::move(y), call.rules.half);
  });
}

}  // namespace

int64_t rope_position(const model::ModelConfig& config, const model::Op& op, int64_t token_position) {
  const int64_t mtp_depth = op.layer - config.num_hidden_layers;
  return mtp_depth < 0 ? token_position : token_position + 1 + mtp_depth;
}

void rotate_query(const OpCall& call, model::TensorView& result) {
  const auto& config = call.config();
  rotate(call,
         {call.inputs[0].num_rows(), config.num_attention_heads, config.qk_rope_head_dim},
         config.num_attention_heads,
         config.qk_nope_head_dim,
         config.qk_head_dim(),
         result);
}

void rotate_key(const OpCall& call, model::TensorView& result) {
  const auto& config = call.config();
  rotate(call, {call.inputs[0].num_rows(), config.qk_rope_head_dim}, 1, config.kv_lora_rank, 0, result);
}

}  // namespace reference
